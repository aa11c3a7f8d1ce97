"""Keeper: watches one engine, takes it out when it fails, and brings it back with the current weights."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from agar.errors import AgarError
from agar.rollout.engines.proof import bring_up_to_date
from agar.rollout.engines.server import EngineState, ManagedEngine

if TYPE_CHECKING:
    from agar.rollout.engines.pool import EnginePool

logger = logging.getLogger(__name__)

_FAILURES_IN_A_ROW = 2
_BACKOFF_S = (0.5, 30.0)
_FORGIVEN_AFTER_S = 600.0
_MISSED = "it missed a publish"


class Keeper:
    """Keeps one engine of a pool alive and current.

    Args:
        engine: the engine.
        pool: its pool, which knows the current weights and the router.
    """

    def __init__(self, engine: ManagedEngine, pool: "EnginePool") -> None:
        self._engine, self._pool = engine, pool

    async def keep(self) -> None:
        """Watch until cancelled, or until the engine is given up."""
        while self._engine.state is not EngineState.LOST:
            reason = await self._trouble()
            self._pool.counts["engine_failures"] += 1
            await self._pool.expel(self._engine, reason)
            if not (reason == _MISSED and await self._readmitted_as_it_is()):
                await self._bring_back(reason)

    async def _trouble(self) -> str:
        """Wait until something is wrong, and say what."""
        config, failures = self._pool.config, 0
        ended = asyncio.create_task(self._engine.ended())
        wanted = asyncio.create_task(self._engine.wanted.wait())
        try:
            while True:
                await asyncio.wait({ended, wanted}, timeout=config.health_interval_s, return_when="FIRST_COMPLETED")
                if ended.done():
                    return ended.result()
                if wanted.done():
                    return _MISSED
                if self._pool.weights_lock.locked():
                    continue  # a paused engine answers no health check
                problem = await self._problem()
                failures = failures + 1 if problem and not self._pool.weights_lock.locked() else 0
                if failures >= _FAILURES_IN_A_ROW:
                    return f"{failures} health checks in a row failed: {problem}"
        finally:
            ended.cancel()
            wanted.cancel()
            self._engine.wanted.clear()

    async def _problem(self) -> str:
        control = self._engine.control
        if not await control.healthy(timeout_s=self._pool.config.health_timeout_s):
            return "it does not generate"
        try:
            stamp = str((await control.info()).get("weight_version"))
        except (AgarError, OSError) as error:
            return str(error)
        # Somebody restarted an attached engine between two checks, or changed its weights.
        return "" if stamp == str(self._pool.version) else f"it serves version {stamp}, not {self._pool.version}"

    async def _readmitted_as_it_is(self) -> bool:
        """Try what takes no restart: an engine that lives takes the current weights again."""
        async with self._pool.weights_lock:
            if self._engine.state is EngineState.SERVING:
                return True  # a later publish reached it meanwhile
            if self._pool.current is None:
                return False  # nobody can say what it holds now
            try:
                await self._readmit()
            except (AgarError, OSError) as error:
                logger.warning("engine %s cannot rejoin as it is: %s", self._engine.name, error)
                return False
        self._pool.counts["engine_recoveries"] += 1
        return True

    async def _readmit(self) -> None:
        pool, engine = self._pool, self._engine
        if pool.current is not None:
            await bring_up_to_date(engine.control, pool.current, timeout_s=pool.config.publish_timeout_s)
        await pool.admit(engine)

    async def _bring_back(self, reason: str) -> None:
        engine, pool = self._engine, self._pool
        pause_s = _BACKOFF_S[0]
        if time.monotonic() - engine.served_since > _FORGIVEN_AFTER_S:
            engine.restarts = 0
        while True:
            if engine.restarts >= pool.config.restarts and not engine.attached:
                pool.lose(
                    engine, f"{reason}, after {engine.restarts} restarts; its log ends with\n{engine.last_lines()}"
                )
                await engine.stop()
                return
            engine.restarts += 1
            engine.state = EngineState.STARTING
            logger.warning("engine %s is brought back (%d): %s", engine.name, engine.restarts, reason)
            try:
                await engine.stop()
                took_s = await engine.start(version=pool.first_version)
                async with pool.weights_lock:
                    await self._readmit()
            except (AgarError, OSError) as error:  # no file descriptor left, say: it may pass
                reason = str(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _BACKOFF_S[1])
                continue
            engine.served_since = time.monotonic()
            pool.counts["engine_recoveries"] += 1
            logger.warning("engine %s is back after %.1f s", engine.name, took_s)
            return
