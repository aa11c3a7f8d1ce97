"""A whole run but for its numerics: loop, scheduler, gateway, agent and folder are real; the trainer only counts.

What is trained, in which order, and what a stop, an error or a resume makes of it.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from tests.conftest import MODEL_CONFIG

from agar.config import resolve
from agar.errors import AuditError, TrainerError
from agar.ledger.toy import write_toy_model
from agar.ledger.trace import load_traces
from agar.recipe import train as module
from agar.recipe.config import Recipe
from agar.recipe.folder import RunFolder
from agar.recipe.train import Result, Run
from agar.recipe.view import View
from agar.rollout.engines.hashlm import HashLM, weights_digest
from agar.types import Batch, Floats, GroupId, Ids, Metrics, Probe, Receipt, Receiver, WeightUpdate

STEPS, TASKS, SIZE = 4, 2, 2


class CountingTrainer:
    """A trainer whose weights are the number of its steps."""

    trained: list[set[GroupId]]
    """The groups of each step that any trainer took; reset by the fixture."""
    fails_at: int | None = None
    digest = ""
    """Of the weights as they were published last; what it scores with."""

    def __init__(self, config: Any, *, policy: str, run_dir: Path) -> None:
        self.policy, self.store, self.steps = policy, run_dir / "published", 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None: ...

    async def step(self, batch: Batch) -> Metrics:
        if self.steps + 1 == self.fails_at:
            raise TrainerError("rank 0 could not take step")
        self.steps += 1
        CountingTrainer.trained.append({sample.group for sample in batch.samples})
        return {"trainer/loss": 0.5, "trainer/steps": float(self.steps)}

    async def publish(self, to: Receiver, *, version: int) -> Receipt:
        directory = self.store / f"v{version}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model.safetensors").write_text(f"after step {self.steps}")
        ids = np.array([5, 6, 7], dtype=np.int32)
        digest = self.digest = weights_digest(directory)
        return await to.receive(
            WeightUpdate(
                policy=self.policy,
                version=version,
                transport="disk",
                payload={"directory": str(directory)},
                digest=digest,
                probe=Probe(token_ids=ids, logprobs=HashLM(weights=digest).sequence_logprobs(ids)),
            )
        )

    async def logprobs(self, token_ids: Ids) -> Floats:
        return HashLM(weights=self.digest).sequence_logprobs(token_ids)

    async def save(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "steps").write_text(str(self.steps))

    async def load(self, directory: Path) -> None:
        self.steps = int((directory / "steps").read_text())


@pytest.fixture(autouse=True)
def trainer(monkeypatch):
    monkeypatch.setattr(module, "RayPolicyTrainer", CountingTrainer)
    monkeypatch.setattr(CountingTrainer, "trained", [], raising=False)
    monkeypatch.setattr(CountingTrainer, "fails_at", None)
    return CountingTrainer


@pytest.fixture
def recipe(tmp_path):
    model = write_toy_model(tmp_path / "model")
    (model / "config.json").write_text(json.dumps(MODEL_CONFIG | {"max_position_embeddings": 2048}))
    (model / "model.safetensors").write_bytes(b"first weights")
    return tmp_path, {
        "run.steps": STEPS,
        "run.checkpoint_every_steps": 2,
        "policies.main.model": model,
        "engines.backend": "fake",
        "engines.router": "none",
        "agent.transport": "direct",
        "rollout.tasks_per_step": TASKS,
        "rollout.group_size": SIZE,
        "rollout.sampling.max_tokens": 8,
        "tasks": '[{env="Guess-v0"}]',
        "evaluate": '[{env="Guess-v0", tasks=2, every_steps=2, sampling={max_tokens=8}}]',
    }


async def run(recipe, folder: RunFolder, *, stop_after: int | None = None, **changes: Any) -> Result:
    """Start the run, or go on with it where the folder has a checkpoint."""
    _, values = recipe
    settings = resolve(Recipe, overrides=[f"{k.replace('__', '.')}={v}" for k, v in {**values, **changes}.items()])
    settings.config.check("train")
    resume = folder.rewind()
    after = resume.progress().step if resume else -1
    with View(folder, steps=settings.config.run.steps, resume_after=after) as view:
        work = Run(settings.config, folder, view, resume=resume)
        step = view.step

        def stopping(number: int, row: Metrics) -> None:
            step(number, row)
            if number == stop_after:
                assert work.stop()

        view.step = stopping  # type: ignore[method-assign]
        return await asyncio.wait_for(work.reinforce(), 50)


def rows(folder: RunFolder, key: str) -> list[tuple[int, float]]:
    found = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [(row["step"], row[key]) for row in found if key in row]


def groups(folder: RunFolder, step: int) -> set[GroupId]:
    return {trace.group for trace in load_traces(folder.path / "traces" / f"step-{step:06d}.jsonl")}


@pytest.mark.parametrize("staleness", [0, 1])
async def test_every_task_is_trained_once_in_order_and_leaves_its_traces(recipe, trainer, staleness):
    folder = RunFolder.create(recipe[0], "run")
    result = await run(recipe, folder, rollout__max_staleness=staleness)
    assert (result.progress.step, result.progress.versions, result.stopped) == (STEPS, {"main": STEPS}, False)
    ordinals = [sorted(group.ordinal for group in step) for step in trainer.trained]
    assert ordinals == [[n * TASKS + i for i in range(TASKS)] for n in range(STEPS)]
    assert [groups(folder, step) for step in range(1, STEPS + 1)] == trainer.trained
    ages = [age for _, age in rows(folder, "rollout/staleness_max")]
    assert max(ages) <= staleness
    assert [step for step, _ in rows(folder, "eval/Guess-v0/trajectories")] == [0, 2, 4]
    assert (len(result.before), len(result.after)) == (1, 1)
    assert [checkpoint.progress().step for checkpoint in folder.checkpoints()] == [2, 4]


@pytest.mark.parametrize("staleness", [0, 1])
async def test_a_stopped_run_goes_on_exactly_where_it_stood(recipe, trainer, staleness):
    folder = RunFolder.create(recipe[0], "run")
    stopped = await run(recipe, folder, stop_after=1, rollout__max_staleness=staleness)
    assert stopped.stopped
    assert folder.checkpoints()[-1].progress().step == 1
    finished = await run(recipe, folder, rollout__max_staleness=staleness)
    assert not finished.stopped
    assert sorted(group.ordinal for step in trainer.trained for group in step) == list(range(STEPS * TASKS))
    assert [groups(folder, step) for step in range(1, STEPS + 1)] == trainer.trained
    assert rows(folder, "trainer/steps") == [(step, float(step)) for step in range(1, STEPS + 1)]


async def test_an_evaluation_that_a_resume_repeats_is_written_once(recipe, trainer):
    folder = RunFolder.create(recipe[0], "run")
    await run(recipe, folder, stop_after=2)
    await run(recipe, folder)
    assert [step for step, _ in rows(folder, "eval/Guess-v0/trajectories")] == [0, 2, 4]
    assert [step for step, _ in rows(folder, "trainer/steps")] == [1, 2, 3, 4]


async def test_a_run_that_failed_goes_back_to_its_checkpoint_and_plays_the_same_tasks(recipe, trainer, monkeypatch):
    monkeypatch.setattr(trainer, "fails_at", 4)
    folder = RunFolder.create(recipe[0], "run")
    with pytest.raises(TrainerError, match="rank 0"):
        await run(recipe, folder)
    assert len(trainer.trained) == 3, "it failed in the fourth step, after the checkpoint of the second"
    third = trainer.trained[2]
    monkeypatch.setattr(trainer, "fails_at", None)
    await run(recipe, folder)
    assert trainer.trained[3] == third, "the third step is done again, on the same groups"
    assert rows(folder, "trainer/steps") == [(step, float(step)) for step in range(1, STEPS + 1)]
    assert [groups(folder, step) for step in (3, 4)] == trainer.trained[3:]
    assert len(list((folder.path / "before-resume").glob("*-step-*"))) == 2


async def test_a_finished_run_takes_no_step_more_unless_asked_for(recipe, trainer):
    folder = RunFolder.create(recipe[0], "run")
    await run(recipe, folder)
    again = await run(recipe, folder)
    assert len(trainer.trained) == STEPS
    assert again.after
    more = await run(recipe, folder, run__steps=STEPS + 1)
    assert (len(trainer.trained), more.progress.step) == (STEPS + 1, STEPS + 1)


async def test_some_rows_of_each_batch_are_scored_again_before_they_are_trained(recipe, trainer):
    folder = RunFolder.create(recipe[0] / "runs", "scored")
    await run(recipe, folder, ledger__rescored_rows=2)
    assert rows(folder, "ledger/parity_max_nats") == [(step, 0.0) for step in range(1, STEPS + 1)]
    assert all(tokens > 0 for _, tokens in rows(folder, "ledger/parity_tokens"))
    assert [n for _, n in rows(folder, "ledger/looked_at_I6")] == [float(TASKS * SIZE)] * STEPS


async def test_a_trainer_whose_logprobs_are_not_the_engines_trains_nothing_under_a_strict_audit(
    recipe, trainer, monkeypatch
):
    async def others(self, token_ids: Ids) -> Floats:
        return HashLM(weights="others").sequence_logprobs(token_ids)

    monkeypatch.setattr(trainer, "logprobs", others)
    with pytest.raises(AuditError, match=r"I3 in the batch: the trainer's log-probs of .* differ from the engine's"):
        await run(recipe, RunFolder.create(recipe[0] / "runs", "strict"))
    assert trainer.trained == []
    folder = RunFolder.create(recipe[0] / "runs", "warned")
    await run(recipe, folder, ledger__audit="warn")
    assert [n for _, n in rows(folder, "ledger/violations")] == [1.0] * STEPS


async def test_the_tighter_staleness_bound_holds(recipe, trainer):
    folder = RunFolder.create(recipe[0] / "runs", "stale")
    await run(recipe, folder, rollout__max_staleness=1, ledger__record__max_staleness=0)
    assert any(rows(folder, "ledger/excluded_stale_weights_tokens"))
