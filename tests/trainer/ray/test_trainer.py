"""The whole trainer: Ray, Megatron, publication, checkpoints."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from agar.errors import ConfigError, ShapeError, TrainerError
from agar.trainer.config import OptimizerConfig, ParallelConfig, ScheduleConfig, TrainerConfig
from agar.trainer.ray import trainer as module
from agar.trainer.ray.checkpoints import finish
from agar.trainer.ray.trainer import RayPolicyTrainer
from agar.types import Batch, Receipt, Source, WeightUpdate

pytestmark = [
    pytest.mark.ray,
    pytest.mark.megatron,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

SCHEDULE = ScheduleConfig(kind="linear", warmup_steps=2, total_steps=20)


class Shelf:
    """A receiver that keeps what it is sent."""

    def __init__(self) -> None:
        self.updates: list[WeightUpdate] = []

    async def receive(self, update: WeightUpdate) -> Receipt:
        self.updates.append(update)
        return Receipt(version=update.version, digest=update.digest, checksum="", engines=("shelf",))


def settings(models: dict[bool, Path], **changes: object) -> TrainerConfig:
    fields = {"model": models[True], "optimizer": OptimizerConfig(lr=1e-2), "schedule": SCHEDULE} | changes
    return TrainerConfig.model_validate(fields)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trainer(models, tmp_path_factory) -> AsyncIterator[RayPolicyTrainer]:
    """One trainer for most tests here, since a rank takes seconds to start; it owns the cluster that others borrow."""
    run_dir = tmp_path_factory.mktemp("run")
    async with RayPolicyTrainer(settings(models), policy="policy", run_dir=run_dir) as opened:
        yield opened


@pytest.fixture
def batch(batches) -> Batch:
    return batches[True, Source.SAMPLED]


async def test_resume_is_exact_in_this_process_and_in_another(trainer, batch, models, tmp_path):
    for _ in range(2):
        await trainer.step(batch)
    await trainer.save(tmp_path / "checkpoint")
    expected = [await trainer.step(batch) for _ in range(2)]
    digest = await trainer.export(tmp_path / "expected")
    assert not list(tmp_path.glob(".*"))  # nothing half-written is left

    await trainer.load(tmp_path / "checkpoint")
    here = [await trainer.step(batch) for _ in range(2)]
    assert await trainer.export(tmp_path / "here") == digest
    async with RayPolicyTrainer(settings(models), policy="policy", run_dir=tmp_path) as other:
        await other.load(tmp_path / "checkpoint")
        there = [await other.step(batch) for _ in range(2)]
        assert await other.export(tmp_path / "there") == digest
    for resumed in (here, there):
        for a, b in zip(expected, resumed, strict=True):
            for name in ("loss", "grad_norm", "lr", "entropy_mean", "engine_kl_mean", "engine_gap_max", "steps"):
                assert a[f"trainer/{name}"] == b[f"trainer/{name}"], name


async def test_an_export_is_a_model_for_transformers(trainer, tmp_path):
    import torch
    import transformers

    await trainer.export(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.int32)
    logits = model(torch.tensor(ids[None, :-1].astype(np.int64))).logits[0]
    theirs = torch.log_softmax(logits, -1)[torch.arange(7), torch.tensor(ids[1:].astype(np.int64))]
    np.testing.assert_allclose(await trainer.logprobs(ids), theirs.detach().numpy(), atol=1e-4)


async def test_publish_sends_a_digest_that_follows_the_weights_and_a_probe(trainer, batch):
    shelf = Shelf()
    await trainer.publish(shelf, version=1)
    await trainer.publish(shelf, version=2)
    await trainer.step(batch)
    receipt = await trainer.publish(shelf, version=3)
    first, second, third = shelf.updates
    assert receipt.version == 3
    assert first.digest == second.digest != third.digest
    directories = [update.payload["directory"] for update in shelf.updates]
    assert [os.path.isdir(directory) for directory in directories] == [False, True, True]
    np.testing.assert_array_equal(third.probe.logprobs, await trainer.logprobs(third.probe.token_ids))
    assert np.abs(third.probe.logprobs - first.probe.logprobs).max() > 1e-3
    assert third.probe.tolerance == (await trainer.step(batch))["trainer/probe_tolerance_nats"] == 1e-3


async def test_a_probe_is_what_engines_find_who_score_it_at_temperature_1(models, trainer, tmp_path):
    import torch
    import transformers

    shelf = Shelf()
    async with RayPolicyTrainer(settings(models, temperature=0.7), policy="policy", run_dir=tmp_path) as cold:
        await cold.publish(shelf, version=1)
        ids = shelf.updates[0].probe.token_ids
        at_its_own = await cold.logprobs(ids)
    model = transformers.AutoModelForCausalLM.from_pretrained(models[True], dtype=torch.float32)
    logits = model(torch.tensor(ids[None, :-1].astype(np.int64))).logits[0].detach()
    targets = torch.tensor(ids[1:].astype(np.int64))[:, None]
    for found, temperature in ((shelf.updates[0].probe.logprobs, 1.0), (at_its_own, 0.7)):
        expected = torch.log_softmax(logits / temperature, -1).gather(1, targets)[:, 0]
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)


async def test_a_batch_without_anything_to_train_takes_no_step(trainer, batch):
    idle = Batch(samples=tuple(s.but(loss_mask=np.zeros(len(s.token_ids), bool)) for s in batch.samples))
    before = trainer.steps
    metrics = await trainer.step(idle)
    assert metrics["trainer/steps_empty"] == 1
    assert (await trainer.step(batch))["trainer/steps"] == before + 1


async def test_a_bad_batch_does_not_break_the_trainer(trainer, batch, batches):
    with pytest.raises(ShapeError, match="no engine sampled"):
        await trainer.step(batches[True, Source.DEMONSTRATION])
    foreign = Batch(samples=tuple(s.but(token_ids=s.token_ids + 96) for s in batch.samples))
    with pytest.raises(ShapeError, match="vocabulary of 96"):
        await trainer.step(foreign)
    before = trainer.steps
    assert (await trainer.step(batch))["trainer/steps"] == before + 1


async def test_a_save_that_is_cancelled_while_it_is_moved_leaves_a_whole_checkpoint(trainer, tmp_path, monkeypatch):
    moving, gone_on = threading.Event(), threading.Event()

    def slowly(partial: Path, directory: Path, record: Mapping[str, Any]) -> None:
        moving.set()
        gone_on.wait(10)
        finish(partial, directory, record)

    monkeypatch.setattr(module, "finish", slowly)
    saving = asyncio.create_task(trainer.save(tmp_path / "last"))
    await asyncio.to_thread(moving.wait, 60)
    saving.cancel()
    await asyncio.sleep(0.2)
    gone_on.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    await trainer.load(tmp_path / "last")
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


async def test_a_checkpoint_that_is_none_is_refused(trainer, tmp_path):
    with pytest.raises(TrainerError, match=r"trainer\.json"):
        await trainer.load(tmp_path)


async def test_a_rank_that_dies_is_named_and_later_calls_repeat_it(trainer, models, batch, tmp_path):
    config = settings(models, parallel=ParallelConfig(dp_size=2))
    async with RayPolicyTrainer(config, policy="policy", run_dir=tmp_path) as pair:
        metrics = await pair.step(batch)
        assert metrics["trainer/tokens"] == metrics["trainer/trained_tokens"]
        pids = await pair._ranks.all(lambda actor, _: actor.pid.remote(), what="give its pid", deadline_s=30)
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(TrainerError, match="rank 1 could not take step 2: ActorDiedError"):
            await pair.step(batch)
        with pytest.raises(TrainerError, match="has failed before"):
            await pair.step(batch)


async def test_the_event_loop_keeps_running_during_a_step(trainer, batches):
    big = Batch(samples=batches[True, Source.SAMPLED].samples)
    gaps = []

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(loop.time() - last)
            last = loop.time()

    watcher = asyncio.create_task(watch())
    for _ in range(3):
        await trainer.step(big)
    watcher.cancel()
    assert len(gaps) > 5


async def test_a_model_that_cannot_be_split_is_refused_before_anything_starts(models, tmp_path):
    config = settings(models, parallel=ParallelConfig(pp_size=3))
    with pytest.raises(ConfigError, match="2 layers cannot be split over 3 ranks"):
        RayPolicyTrainer(config, policy="policy", run_dir=tmp_path)
