"""The loop: next batch, step, publish. One driver for on-policy, asynchronous, SFT and replay; one knob.

The knob is `max_staleness`, and it lives in the source: a source never hands out a sample that is older. Sources that
need no engines (demonstrations, saved traces) come with no receivers, and nothing is published.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from agar.types import Batch, BatchSource, Metrics, PolicyTrainer, Receipt, Receiver

AtBoundary = Callable[[int, Mapping[str, Metrics], Metrics], Awaitable[None]]
"""Called with (steps done, trainer metrics by policy, batch metrics) once weights are out: after each step, and at the
start with no metrics. The place for checkpoints and evaluations: nothing is half done."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """Where a run stands: what a checkpoint stores and a resume restores.

    Attributes:
        step: optimiser steps done.
        versions: policy version that each policy's engines serve; it counts publishes of new weights.
    """

    step: int = 0
    versions: dict[str, int] = field(default_factory=dict)


class Loop:
    """Drives trainers from a source.

    Args:
        source: where batches come from.
        trainers: by policy name.
        receivers: the engines of each policy; a policy without one is trained but not published.
        progress: where to start; a resumed run passes what it saved.
        at_boundary: checkpoint, evaluation, metrics.

    Attributes:
        ended: True once `run` has done its last step, and only its source is being closed.
    """

    def __init__(
        self,
        *,
        source: BatchSource,
        trainers: Mapping[str, PolicyTrainer],
        receivers: Mapping[str, Receiver],
        progress: Progress,
        at_boundary: AtBoundary,
    ) -> None:
        self.source = source
        self.trainers = trainers
        self.receivers = receivers
        self.progress = progress
        self.at_boundary = at_boundary
        self._stop = asyncio.Event()
        self.ended = False
        for name in trainers:
            progress.versions.setdefault(name, 0)

    async def run(self, steps: int) -> None:
        """Train until `steps` optimiser steps are done in all, or `stop` is called."""
        await self.publish_all()  # also after a resume: no token on unpublished weights
        await self.at_boundary(self.progress.step, {}, {})
        async with self.source.running(steps - self.progress.step):
            while self.progress.step < steps and (batch := await self._next_batch()):
                metrics = {name: await trainer.step(batch.of(name)) for name, trainer in self.trainers.items()}
                for name in self.trainers:
                    self.progress.versions[name] += 1
                await self.publish_all()
                self.progress.step += 1
                await self.at_boundary(self.progress.step, metrics, batch.metrics)
            self.ended = True

    def stop(self) -> None:
        """End `run` at the next boundary between steps, where a checkpoint is exact."""
        self._stop.set()

    async def _next_batch(self) -> Batch | None:
        """The next batch; None once `stop` was called before one was ready."""
        waiting = asyncio.create_task(self.source.next_batch(self.progress.versions))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            if not self._stop.is_set():
                await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return await waiting if waiting.done() else None
        finally:
            for task in (waiting, stopping):
                task.cancel()
            await asyncio.gather(waiting, stopping, return_exceptions=True)

    async def publish_all(self) -> dict[str, Receipt]:
        """Publish every policy's weights under its current version, with the engines' callers quiet meanwhile."""
        async with self.source.publishing(self.progress.versions):
            return {
                name: await self.trainers[name].publish(receiver, version=self.progress.versions[name])
                for name, receiver in self.receivers.items()
            }
