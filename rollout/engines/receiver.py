"""WeightReceiver: the boundary around a publish, for all engines of a pool."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from agar.errors import AgarError, DeadlineError, EngineError, PublishError
from agar.rollout.engines.config import PublishMode
from agar.rollout.engines.proof import Delivered, Proof, deliver, judge
from agar.rollout.engines.server import EngineState, ManagedEngine
from agar.types import Receipt, WeightUpdate

if TYPE_CHECKING:
    from agar.rollout.engines.pool import EnginePool

logger = logging.getLogger(__name__)

_ABORT_S = 2.0
_ABORT_AGAIN_S = 0.1
_CUT_AFTER_S = 10.0
_CUT_ENDS_S = 1.0
_LOOK_AGAIN_S = 0.2
_HAS_WEIGHTS = (EngineState.SERVING, EngineState.OUT)


class WeightReceiver:
    """Closes the gate, delivers an update to every engine, believes only proof, and opens the gate again.

    Args:
        pool: whose engines receive.

    Attributes:
        current: the update that is served; None before the first.
        weights: held while engines change weights.
    """

    def __init__(self, pool: "EnginePool") -> None:
        self._pool = pool
        self.current: Delivered | None = None
        self.weights = asyncio.Lock()
        self._boundary = asyncio.Lock()  # held while the gate is closed for a publish

    @asynccontextmanager
    async def publishing(self, mode: PublishMode | None) -> AsyncIterator[None]:
        """See `EnginePool.publishing`."""
        gate = self._pool.gate
        async with self._boundary:
            gate.close()
            try:
                await self._quiet(mode or self._pool.config.on_publish)
                yield
            finally:
                gate.open(gate.version)

    async def _quiet(self, mode: PublishMode) -> None:
        pool, timeout_s = self._pool, self._pool.config.publish_timeout_s
        began = time.monotonic()
        if mode == "finish" and await pool.gate.emptied(timeout_s):
            return
        while mode == "interrupt" and time.monotonic() - began < timeout_s:
            live = [engine for engine in pool.engines if engine.state is EngineState.SERVING]
            cut_after_s = min(_CUT_AFTER_S, timeout_s / 2)
            await asyncio.gather(*[_abort(engine, timeout_s=min(_ABORT_S, cut_after_s)) for engine in live])
            # Asked again and again: a call may have been on its way to an engine when the others were aborted.
            if await pool.gate.emptied(_ABORT_AGAIN_S):
                return
            if time.monotonic() - began > cut_after_s:
                pool.counts["calls_cut"] += pool.client().cut()
                if await pool.gate.emptied(_CUT_ENDS_S):  # looked at once more, though it be past the deadline
                    return
        raise DeadlineError(
            f"{pool.gate.inside} model calls did not end within {timeout_s:.0f} s of a publish ({mode}): shorten "
            'replies, set engines.on_publish = "interrupt", or raise engines.publish_timeout_s'
        )

    async def receive(self, update: WeightUpdate) -> Receipt:
        """See `EnginePool.receive`."""
        if self._boundary.locked():  # inside `publishing`
            return await self._receive(update)
        async with self.publishing(None):
            return await self._receive(update)

    async def _receive(self, update: WeightUpdate) -> Receipt:
        pool, began = self._pool, time.monotonic()
        await self._until_some_engine_can_receive()
        async with self.weights:
            live = [engine for engine in pool.engines if engine.state in _HAS_WEIGHTS]
            outcomes = await asyncio.gather(*[self._deliver(engine, update) for engine in live])
            named = {engine.name: outcome for engine, outcome in zip(live, outcomes, strict=True)}
            proofs = {name: outcome for name, outcome in named.items() if isinstance(outcome, Proof)}
            failed = {name: outcome for name, outcome in named.items() if isinstance(outcome, str)}
            try:
                checksum, unproven = judge(proofs, update, self.current, failed)
            except PublishError as error:
                pool.gate.break_with(EngineError(f"calls are refused since a publish failed: {error}"))
                await self._reject(live, dict.fromkeys(named, str(error)))
                raise
            self.current = Delivered(update=update, checksum=checksum)
            # At once: what follows may fail or be cancelled, and the engines serve the new version already.
            pool.gate.version = update.version
            pool.gate.repair()
            missed = {**failed, **unproven}
            await self._reject([engine for engine in live if engine.name in missed], missed)
            for engine in live:
                if engine.name not in missed and engine.state is EngineState.OUT:
                    try:
                        await pool.admit(engine)
                    except (AgarError, OSError) as error:  # the router restarts, perhaps: the keeper tries again
                        missed[engine.name] = str(error) or repr(error)
                        await self._reject([engine], missed)
        if not self._serving():
            await self._until_some_engine_serves(update.version, missed)
            missed = {name: why for name, why in missed.items() if name not in self._serving()}
        engines = tuple(sorted({*proofs, *self._serving()} - set(missed)))
        pool.counts["publishes"] += 1
        seconds = time.monotonic() - began
        logger.info("version %d is on %d engines after %.3f s", update.version, len(engines), seconds)
        return Receipt(
            version=update.version,
            digest=update.digest,
            checksum=checksum,
            engines=engines,
            missed=missed,
            probe_gap=max(proof.gap for name, proof in proofs.items() if name not in unproven),
            seconds=seconds,
        )

    async def _until_some_engine_can_receive(self) -> None:
        """Wait for a restart to end where every engine is down just now."""
        pool = self._pool
        until = time.monotonic() + pool.config.start_timeout_s
        while not any(engine.state in _HAS_WEIGHTS for engine in pool.engines):
            if all(engine.state is EngineState.LOST for engine in pool.engines) or time.monotonic() > until:
                states = ", ".join(f"{engine.name} is {engine.state.value}" for engine in pool.engines)
                raise PublishError(f"no engine can receive weights ({states}): look at the logs in {pool.run_dir}")
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _serving(self) -> set[str]:
        return {engine.name for engine in self._pool.engines if engine.state is EngineState.SERVING}

    async def _until_some_engine_serves(self, version: int, missed: dict[str, str]) -> None:
        """Wait for a keeper to admit an engine, where none of those that proved the weights could be admitted."""
        pool = self._pool
        until = time.monotonic() + pool.config.start_timeout_s
        while not self._serving():
            if all(engine.state is EngineState.LOST for engine in pool.engines) or time.monotonic() > until:
                states = "; ".join(
                    f"{engine.name} is {engine.state.value}: {missed.get(engine.name, 'it left meanwhile')}"
                    for engine in pool.engines
                )
                error = PublishError(
                    f"version {version} is proven, but no engine serves it ({states}): look at the logs of the router "
                    f"and the engines in {pool.run_dir}, or raise engines.start_timeout_s"
                )
                pool.gate.break_with(EngineError(f"calls are refused since a publish failed: {error}"))
                raise error
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _deliver(self, engine: ManagedEngine, update: WeightUpdate) -> Proof | str:
        try:
            return await deliver(engine.control, update, timeout_s=self._pool.config.publish_timeout_s)
        except (AgarError, OSError) as error:
            return str(error) or repr(error)

    async def _reject(self, engines: list[ManagedEngine], reasons: dict[str, str]) -> None:
        for engine in engines:
            self._pool.counts["missed"] += 1
            await self._pool.expel(engine, reasons[engine.name])
            engine.wanted.set()


async def _abort(engine: ManagedEngine, *, timeout_s: float) -> None:
    with suppress(EngineError):  # a dead engine holds no call for long, and the calls of a hung one are cut
        await engine.control.abort_all(timeout_s=timeout_s)
