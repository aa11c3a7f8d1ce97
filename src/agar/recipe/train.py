"""Runs a recipe's training: RL from live rollouts, or SFT from demonstrations, in a run folder."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from agar.ledger.parity import ParityCheck
from agar.ledger.trace import Trace
from agar.loop import Loop, Progress
from agar.recipe.config import Recipe
from agar.recipe.folder import Checkpoint, RunFolder
from agar.recipe.players import Players, family_of, playing
from agar.recipe.together import enter_together
from agar.recipe.view import View
from agar.rollout.config import EvaluationConfig
from agar.rollout.controls import shuffle_rewards
from agar.rollout.evaluate import Evaluation
from agar.rollout.scheduler import Scheduler
from agar.rollout.sources.demonstrations import Demonstrations
from agar.rollout.sources.live import LiveRollouts
from agar.trainer.ray.trainer import RayPolicyTrainer
from agar.types import BatchSource, Metrics

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Result:
    """What a run came to.

    Attributes:
        folder: where everything is.
        progress: steps done.
        before: evaluations of the starting policy.
        after: evaluations of the trained one.
        checkpoint: the last one saved.
        stopped: True where it was asked to stop before its last step.
    """

    folder: RunFolder
    progress: Progress
    before: list[Evaluation] = field(default_factory=list)
    after: list[Evaluation] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    stopped: bool = False


class Run:
    """One run of a recipe, from start or from a checkpoint.

    Args:
        recipe: the settings.
        folder: where to write.
        view: shows what happens.
        resume: the checkpoint to go on from.
    """

    def __init__(self, recipe: Recipe, folder: RunFolder, view: View, resume: Checkpoint | None = None) -> None:
        self.recipe = recipe
        self.folder = folder
        self.view = view
        self._resume = resume
        self._progress = resume.progress() if resume else Progress()
        self._result = Result(folder=folder, progress=self._progress, checkpoint=resume)
        self._loop: Loop | None = None
        self._step_started = time.monotonic()

    @property
    def closing(self) -> bool:
        """True once training has ended: what is left is to save it, and to close engines and trainers."""
        return self._loop is not None and self._loop.ended

    def stop(self) -> bool:
        """End at the next boundary between steps and save a checkpoint there; False where no step is under way."""
        if self._loop is None:
            return False
        self._loop.stop()
        return True

    async def reinforce(self) -> Result:
        """Train by RL on the recipe's tasks, evaluating as it says.

        Raises:
            AgarError: whatever stopped the run; its message says what to do.
        """
        async with AsyncExitStack() as stack:
            trainers, players = await self._start(stack)
            source = self._live(trainers, players)
            self._restore_source(source)
            await self._drive(self._make_loop(trainers, source, players))
        return self._result

    async def imitate(self) -> Result:
        """Train by SFT on the recipe's demonstrations; no engines."""
        assert self.recipe.demonstrations is not None
        async with AsyncExitStack() as stack:
            trainers = await stack.enter_async_context(self._trainers())
            source = Demonstrations(
                self.recipe.demonstrations,
                family=family_of(self.recipe, self.recipe.demonstrations.policy),
                steps=self.recipe.run.steps,
                seed=self.recipe.run.seed,
            )
            self._restore_source(source)
            await self._drive(self._make_loop(trainers, source, None))
        return self._result

    async def _start(self, stack: AsyncExitStack) -> tuple[dict[str, RayPolicyTrainer], Players]:
        """Bring up the trainers and the engines side by side."""
        with self.view.stage("engines and trainer"):
            trainers, players = await enter_together(
                stack, self._trainers(), playing(self.recipe, logs=self.folder.logs)
            )
        return trainers, players

    @asynccontextmanager
    async def _trainers(self) -> AsyncIterator[dict[str, RayPolicyTrainer]]:
        async with AsyncExitStack() as stack:
            trainers = {}
            for name, config in self.recipe.policies.items():
                trainer = RayPolicyTrainer(config, policy=name, run_dir=self.folder.path)
                trainers[name] = await stack.enter_async_context(trainer)
                if self._resume is not None:
                    await trainer.load(self._resume.path / name)
            yield trainers

    def _live(self, trainers: Mapping[str, RayPolicyTrainer], players: Players) -> LiveRollouts:
        rollout, ledger = self.recipe.rollout, self.recipe.ledger
        scheduler = Scheduler(streams=players.streams(), play=players.play(), config=rollout, seed=self.recipe.run.seed)
        return LiveRollouts(
            scheduler=scheduler,
            boundaries=[pool.publishing for pool in players.pools.values()],
            record=ledger.record.within(rollout.max_staleness),
            audit=ledger.audit,
            families=players.families,
            closely=ledger.closely,
            parity=ParityCheck(
                rescore=lambda policy, ids: trainers[policy].logprobs(ids),
                rows=ledger.rescored_rows,
                tolerance_nats=ledger.parity_nats,
            ),
            keep=self._keep if self.recipe.run.keep_traces else None,
            alter=partial(shuffle_rewards, seed=self.recipe.run.seed) if self.recipe.run.shuffle_rewards else None,
        )

    def _keep(self, traces: Sequence[Trace]) -> None:
        self.folder.keep(traces, f"step-{self._progress.step + 1:06d}")

    def _restore_source(self, source: BatchSource) -> None:
        if self._resume is not None:
            source.load_state(self._resume.source())

    def _make_loop(
        self, trainers: Mapping[str, RayPolicyTrainer], source: BatchSource, players: Players | None
    ) -> Loop:
        async def at_boundary(step: int, trained: Mapping[str, Metrics], batch: Metrics) -> None:
            if trained:
                self._report(step, trained, batch, players.metrics() if players is not None else {})
            every = self.recipe.run.checkpoint_every_steps
            if trained and every and step % every == 0:
                await self._save(trainers, source)
            if players is not None:
                await self._evaluate_due(players, step)
            self._step_started = time.monotonic()

        self._loop = Loop(
            source=source,
            trainers=trainers,
            receivers=players.pools if players is not None else {},
            progress=self._progress,
            at_boundary=at_boundary,
        )
        return self._loop

    async def _drive(self, loop: Loop) -> None:
        self._step_started = time.monotonic()
        await loop.run(self.recipe.run.steps)
        saved = self._result.checkpoint.progress().step if self._result.checkpoint else -1
        if self._progress.step != saved:
            await self._save(loop.trainers, loop.source)  # type: ignore[arg-type]
        self._result.stopped = self._progress.step < self.recipe.run.steps

    def _report(self, step: int, trained: Mapping[str, Metrics], batch: Metrics, counted: Metrics) -> None:
        row: dict[str, float] = {**batch, **counted}
        for name, metrics in trained.items():
            prefix = "" if len(trained) == 1 else f"{name}/"
            row |= {f"{prefix}{key}": value for key, value in metrics.items()}
        row["loop/step_s"] = time.monotonic() - self._step_started
        self.view.step(step, row)

    async def _save(self, trainers: Mapping[str, RayPolicyTrainer], source: BatchSource) -> None:
        partial_folder = self.folder.start_checkpoint(self._progress.step)
        for name, trainer in trainers.items():
            await trainer.save(partial_folder / name)
        self._result.checkpoint = await asyncio.to_thread(
            self.folder.finish_checkpoint,
            partial_folder,
            replace(self._progress, versions=dict(self._progress.versions)),
            source.state(),
            keep=self.recipe.run.keep_checkpoints,
        )

    async def _evaluate_due(self, players: Players, step: int) -> None:
        """Evaluate before the first step, after the last one, and as often between as each evaluation says."""
        first, last = step == 0, step == self.recipe.run.steps
        due = [c for c in self.recipe.evaluate if first or last or (c.every_steps and step % c.every_steps == 0)]
        results = [await self._evaluate(players, config) for config in due]
        if first:
            self._result.before = results
        if last:
            self._result.after = results

    async def _evaluate(self, players: Players, config: EvaluationConfig) -> Evaluation:
        with self.view.task(f"evaluate {config.title} ({config.split})") as progress:
            result = await players.evaluate(config, progress)
        self.view.evaluation(self._progress.step, result)
        if self.recipe.run.keep_traces:
            name = f"eval-{self._progress.step:06d}-{config.title.replace('/', '_').replace(':', '_')}"
            self.folder.keep(result.traces, name)
        return result
