"""`RayPolicyTrainer`: the trainer of one policy, whose ranks are Ray actors."""

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from agar.errors import ShapeError, TrainerError
from agar.trainer.algorithms.metrics import mean_metrics
from agar.trainer.batching.plan import StepPlan, plan_step
from agar.trainer.config import TrainerConfig
from agar.trainer.megatron.model_config import model_to_train
from agar.trainer.publish.digest import weights_digest
from agar.trainer.publish.hf_directory import copy_companions, write_index
from agar.trainer.publish.probe import probe_ids, row_to_score
from agar.trainer.publish.store import VersionStore
from agar.trainer.ray.checkpoints import beside, finish, read_record
from agar.trainer.ray.ranks import Ranks
from agar.types import Batch, Floats, Ids, Metrics, Probe, Receipt, Receiver, WeightUpdate, frozen_array

logger = logging.getLogger(__name__)


class RayPolicyTrainer:
    """Trains one policy; use it as an async context manager.

    Example:
        async with RayPolicyTrainer(config, policy="policy", run_dir=Path("runs/1")) as trainer:
            metrics = await trainer.step(batch)
            receipt = await trainer.publish(receiver, version=1)

    Args:
        config: settings.
        policy: name of the policy that it trains.
        run_dir: the run's directory.
        tokenizer: directory whose tokenizer and template travel with exports; the starting model by default.

    Raises:
        ConfigError: the starting model cannot be read or is not supported.
    """

    def __init__(self, config: TrainerConfig, *, policy: str, run_dir: Path, tokenizer: Path | None = None) -> None:
        self.config = config.model_copy(update={"model": config.model.resolve()})
        self.policy = policy
        self.shape = model_to_train(self.config, place=f"policies.{policy}")
        self.steps = 0
        self.skipped_steps = 0
        self._ranks = Ranks(self.config, policy=policy)
        self._companions = (tokenizer or self.config.model).resolve()
        self._store = VersionStore(
            parent=config.publish.directory, run_dir=run_dir, policy=policy, keep=config.publish.keep
        )

    async def __aenter__(self) -> Self:
        try:
            await self._ranks.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the ranks and remove published versions; safe to call twice."""
        try:
            await self._ranks.close()
        finally:
            self._store.close()

    async def step(self, batch: Batch) -> Metrics:
        """One optimiser step over the batch.

        Returns:
            `trainer/...` metrics. A batch in which nothing can be trained takes no step and says so:
            `trainer/steps_empty` is 1.

        Raises:
            ShapeError: the batch is inconsistent, or holds tokens outside the vocabulary.
            TrainerError: a rank failed.
            DeadlineError: the step took longer than `timeouts.step_s`.
        """
        start = time.perf_counter()
        self._check_ids(batch)
        plan = plan_step(
            batch.samples,
            algorithm=self.config.algorithm,
            tokens_per_microbatch=self.config.tokens_per_microbatch,
            dp_size=self.config.parallel.dp_size,
            loss=self.config.loss,
        )
        if plan.microbatches_per_rank == 0:
            return {**plan.metrics, "trainer/steps_empty": 1.0, "trainer/step_s": time.perf_counter() - start}
        reports = await self._ranks.all(
            lambda actor, rank: actor.step.remote(plan.microbatches[self._ranks.dp_index[rank]]),
            what=f"take step {self.steps + 1}",
            deadline_s=self.config.timeouts.step_s,
        )
        return self._step_metrics(plan, reports, time.perf_counter() - start)

    def _check_ids(self, batch: Batch) -> None:
        """Refuse tokens that the model does not know here, where it costs a batch and not the ranks."""
        for position, sample in enumerate(batch.samples):
            if len(sample.token_ids) and (largest := int(sample.token_ids.max())) >= self.shape.vocab:
                raise ShapeError(
                    f"sample {position} holds token {largest}, but policy {self.policy!r} has a vocabulary of "
                    f"{self.shape.vocab}: use the tokenizer that belongs to {self.config.model}"
                )

    def _step_metrics(self, plan: StepPlan, reports: list[Any], seconds: float) -> Metrics:
        taken = all(report.taken for report in reports)
        self.steps += taken
        self.skipped_steps += not taken
        sums: dict[str, float] = {}
        for report in reports:
            for name, value in report.sums.items():
                sums[name] = sums.get(name, 0.0) + value
        tokens = sums.get("tokens", 0.0)
        metrics = {
            **plan.metrics,
            **mean_metrics(sums),
            "trainer/grad_norm": reports[0].grad_norm,
            "trainer/lr": reports[0].lr,
            "trainer/steps": float(self.steps),
            "trainer/probe_tolerance_nats": self.config.probe_tolerance_nats,
            "trainer/steps_empty": 0.0,
            "trainer/steps_skipped": float(self.skipped_steps),
            "trainer/rank_step_s": max(report.seconds for report in reports),
            "trainer/step_s": seconds,
            "trainer/tokens_per_s": plan.metrics["trainer/packed_tokens"] / seconds,
        }
        if self.config.loss == "policy":
            metrics["trainer/engine_gap_max"] = max(report.gap_max for report in reports)
        if not taken:
            logger.warning(
                "step %d of policy %r was skipped: gradient norm %s over %d tokens (%d skipped in all)",
                self.steps + 1,
                self.policy,
                reports[0].grad_norm,
                int(tokens),
                self.skipped_steps,
            )
        return metrics

    async def logprobs(self, token_ids: Ids, *, temperature: float | None = None) -> Floats:
        """Log-probs of one sequence under the current weights.

        Args:
            token_ids: int32 [T], T >= 2.
            temperature: by which the logits are divided; None takes the configured one, at which replies are sampled.

        Returns:
            float32 [T - 1]; entry i is log p(token_ids[i + 1] | token_ids[: i + 1]).
        """
        share = [row_to_score(token_ids)]
        answers = await self._ranks.all(
            lambda actor, _: actor.logprobs.remote(share, temperature),
            what="score",
            deadline_s=self.config.timeouts.step_s,
        )
        (found,) = next(answer for answer in answers if answer)
        return frozen_array(found, np.float32, "logprobs")

    async def export(self, directory: Path) -> str:
        """Write the current weights, config, tokenizer and template as a Hugging Face directory.

        Returns:
            The digest of the weights.
        """
        answers = await self._ranks.all(
            lambda actor, _: actor.export.remote(directory), what="export", deadline_s=self.config.timeouts.save_s
        )
        shards = sorted((answer for answer in answers if answer is not None), key=lambda shard: shard.index)
        await asyncio.to_thread(self._complete_export, directory, [shard.sizes for shard in shards])
        return weights_digest({name: value for shard in shards for name, value in shard.hashes.items()})

    def _complete_export(self, directory: Path, shards: list[Mapping[str, int]]) -> None:
        copy_companions(self.config.model, self._companions, directory, dtype=self.config.dtype)
        write_index(directory, shards)

    async def publish(self, to: Receiver, *, version: int) -> Receipt:
        """Send the current weights to the engines as `version`, with a probe that proves delivery.

        Raises:
            PublishError: the receiver could not take or prove them.
            TrainerError: a rank failed during the export.
        """
        directory = await asyncio.to_thread(self._store.directory, version)
        digest = await self.export(directory)
        ids = probe_ids(self.shape.vocab, self.config.publish.probe_tokens)
        logprobs = await self.logprobs(ids, temperature=1.0)  # engines score a prompt without their temperature
        update = WeightUpdate(
            policy=self.policy,
            version=version,
            transport=self.config.publish.transport,
            payload={"directory": str(directory)},
            digest=digest,
            probe=Probe(token_ids=ids, logprobs=logprobs, tolerance=self.config.probe_tolerance_nats),
        )
        receipt = await to.receive(update)
        await asyncio.to_thread(self._store.prune)
        return receipt

    async def save(self, directory: Path) -> None:
        """Write a checkpoint: `hf/`, and every rank's optimiser and random state in `state/`.

        It is written beside `directory` and moved into place at the end, so a checkpoint is whole or absent.
        """
        place = await asyncio.to_thread(directory.resolve)
        partial = beside(place)
        try:
            digest = await self.export(partial / "hf")
            await self._ranks.all(
                lambda actor, _: actor.save.remote(partial / "state"),
                what="save",
                deadline_s=self.config.timeouts.save_s,
            )
            record = {"digest": digest, "policy": self.policy, **self._progress()}
            moving = asyncio.ensure_future(asyncio.to_thread(finish, partial, place, record))
            try:
                await asyncio.shield(moving)
            except asyncio.CancelledError:
                await moving  # or what is being moved would be deleted below
                raise
        finally:
            await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)

    async def load(self, directory: Path) -> None:
        """Restore what `save` wrote, exactly: the next step equals the one that would have followed.

        Raises:
            TrainerError: it is no checkpoint, or of another format, model or layout.
        """
        place = await asyncio.to_thread(directory.resolve)
        record = await asyncio.to_thread(read_record, place)
        if record["parallel"] != self._progress()["parallel"]:
            raise TrainerError(
                f"{place} was saved with {record['parallel']}, this trainer has {self._progress()['parallel']}: "
                f"resume with the same policies.{self.policy}.parallel, or start from its hf/ with a fresh optimiser"
            )
        await self._ranks.all(
            lambda actor, _: actor.load.remote(place / "hf", place / "state"),
            what="load",
            deadline_s=self.config.timeouts.save_s,
        )
        self.steps, self.skipped_steps = int(record["steps"]), int(record["skipped_steps"])

    def _progress(self) -> Mapping[str, Any]:
        return {
            "steps": self.steps,
            "skipped_steps": self.skipped_steps,
            "parallel": self.config.parallel.model_dump(mode="json"),
            "dtype": self.config.dtype,
        }
