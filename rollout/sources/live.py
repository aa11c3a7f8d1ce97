"""Batches from live rollouts."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from agar.ledger.audit import audit
from agar.ledger.config import AuditMode, RecordPolicy
from agar.ledger.emission import emit
from agar.ledger.families.base import Family
from agar.ledger.parity import ParityCheck
from agar.ledger.report import AuditReport, Violation
from agar.ledger.trace import Trace
from agar.rollout.buffer import Group
from agar.rollout.scheduler import Scheduler
from agar.rollout.statistics import rollout_metrics
from agar.types import Batch, Sample

Boundary = Callable[[], AbstractAsyncContextManager[None]]
"""Opens the engines' publish boundary: model calls are quiet inside."""
Keep = Callable[[Sequence[Trace]], None]
"""Takes the traces of a batch, for instance to write them to the run folder."""
Alter = Callable[[list[Sample]], list[Sample]]
"""Changes the audited samples of a batch, for instance a control."""


class LiveRollouts:
    """A `BatchSource` over a scheduler: whole groups, audited, within the staleness bound.

    Args:
        scheduler: plays the episodes.
        boundaries: the publish boundary of each engine pool.
        record: what is kept out of training; its `max_staleness` is the run's.
        audit: what a broken invariant does.
        families: by policy, for the checks that render again.
        closely: traces of each batch that are rendered, written and read again.
        parity: scores rows again before they are trained; None leaves it.
        keep: called with the traces of each batch, in a thread.
        alter: applied to the samples once they have passed the audit.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        boundaries: Sequence[Boundary],
        record: RecordPolicy,
        audit: AuditMode,
        families: Mapping[str, Family] | None = None,
        closely: int = 0,
        parity: ParityCheck | None = None,
        keep: Keep | None = None,
        alter: Alter | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._boundaries = boundaries
        self._record = record
        self._audit = audit
        self._families = families or {}
        self._closely = closely
        self._parity = parity
        self._keep = keep
        self._alter = alter
        self._taken_once = False

    def running(self, batches: int | None = None) -> AbstractAsyncContextManager[None]:
        """Play in the background while the context is open, for so many batches; None: without end."""
        return self._scheduler.running(batches)

    async def next_batch(self, versions: Mapping[str, int]) -> Batch:
        """The next whole groups as one batch.

        A call that is cancelled loses nothing: the groups that it had taken are in `state`, and the next call has them.

        Raises:
            AuditError: the audit found a broken invariant and is strict.
            TrainerError: the trainer could not score rows again.
            DeadlineError, EnvError: as `Scheduler.take`.
        """
        groups, counts = await self._scheduler.take()
        try:
            batch = await self._batch(groups, counts, versions)
        except asyncio.CancelledError:  # the run stops: its last checkpoint must hold what was not trained
            self._scheduler.give_back(groups, counts)
            raise
        self._taken_once = True
        return batch

    async def _batch(self, groups: Sequence[Group], counts: Counter[str], versions: Mapping[str, int]) -> Batch:
        traces = [trace for group in groups for trace in group.traces]
        if self._keep is not None:
            await asyncio.to_thread(self._keep, traces)  # megabytes: episodes are being played meanwhile
        samples = [sample for t in traces for sample in emit(t, self._record, version=versions[t.policy])]
        metrics: dict[str, float] = {}
        if self._audit != "off":
            started = time.monotonic()
            report = await self._audited(traces, samples, versions)
            metrics |= {**report.metrics(), "ledger/audit_s": time.monotonic() - started}
            report.check(self._audit)
        if self._alter is not None:
            samples = self._alter(samples)
        metrics |= rollout_metrics(groups, samples, versions, counts)
        return Batch(samples=tuple(samples), metrics=metrics)

    async def _audited(
        self, traces: Sequence[Trace], samples: Sequence[Sample], versions: Mapping[str, int]
    ) -> AuditReport:
        # In a thread: episodes are being played meanwhile, and their calls must not wait.
        report = await asyncio.to_thread(
            audit,
            traces,
            samples,
            self._record,
            versions=versions,
            families=self._families,
            closely=self._closely,
        )
        if self._parity is None:
            return report
        parity = await self._parity.run(samples, versions)
        problem = self._parity.problem(parity)
        broken = [] if problem is None else [Violation(invariant="I3", trajectory="the batch", detail=problem)]
        return report.but(parity, *broken)

    @asynccontextmanager
    async def publishing(self, versions: Mapping[str, int]) -> AsyncIterator[None]:
        """Quiet the engines' callers on entry; on exit re-admit them and the groups that the new versions allow."""
        async with _all(self._boundaries):
            yield
        if self._taken_once:  # the first publish of a run, and the one after a resume, follow no training step
            await self._scheduler.published()

    def state(self) -> bytes:
        """The scheduler's state, as JSON."""
        return json.dumps(self._scheduler.state()).encode()

    def load_state(self, state: bytes) -> None:
        """Restore what `state` gave; before `running`."""
        self._scheduler.load_state(json.loads(state))


@asynccontextmanager
async def _all(boundaries: Sequence[Boundary]) -> AsyncIterator[None]:
    if not boundaries:
        yield
        return
    async with boundaries[0](), _all(boundaries[1:]):
        yield
