"""The sandboxes of a run: a pool for each kind of sandbox that its episodes ask for."""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

from agar.errors import SandboxError
from agar.sandbox.base import Sandbox
from agar.sandbox.config import PoolConfig, SandboxSpec
from agar.sandbox.factory import create
from agar.sandbox.pool import PoolState, SandboxPool
from agar.types import Metrics

logger = logging.getLogger(__name__)

KINDS = 8
"""Kinds that are kept warm at one time: a task that brings its own folder or image is a kind of its own."""


class SandboxPools:
    """Leases sandboxes by their spec. To be used from one event loop, as an async context manager."""

    def __init__(self, config: PoolConfig | None = None) -> None:
        """Nothing starts before the first lease.

        Args:
            config: bounds of each kind; the defaults if None.
        """
        self._config = config or PoolConfig()
        self._pools: OrderedDict[str, SandboxPool] = OrderedDict()  # the kind leased last comes last
        self._ended: list[PoolState] = []
        self._closed = False

    @asynccontextmanager
    async def lease(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """A fresh sandbox for as long as the context is open.

        Args:
            spec: what it is made of.

        Raises:
            DeadlineError: no place became free in time.
            SandboxError: it could not be started, or these pools are closed.
        """
        async with self._pool(spec).lease() as sandbox:
            await self._forget_idle()
            yield sandbox

    def metrics(self) -> Metrics:
        """`sandbox/<name>`: what there is now, and `sandbox/<name>_count`: totals since construction."""
        states = [pool.state for pool in self._pools.values()]
        ever = [*states, *self._ended]
        return {
            "sandbox/leased": float(sum(state.leased for state in states)),
            "sandbox/warm": float(sum(state.warm for state in states)),
            "sandbox/condemned": float(sum(state.condemned for state in ever)),
            "sandbox/leases_count": float(sum(state.leases for state in ever)),
            "sandbox/warm_leases_count": float(sum(state.warm_leases for state in ever)),
            "sandbox/deleted_count": float(sum(state.deleted for state in ever)),
            "sandbox/failed_starts_count": float(sum(state.failed_starts for state in ever)),
            "sandbox/wait_s": sum(state.wait_s for state in ever),
        }

    async def close(self) -> None:
        """Delete every sandbox, leased ones too, and see them deleted. A second call does nothing.

        Raises:
            SandboxError: some were not gone within the deadline; the message says how many.
        """
        self._closed = True
        async with AsyncExitStack() as stack:  # whatever one of them raises, the others are closed
            for pool in self._pools.values():
                stack.push_async_callback(pool.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _pool(self, spec: SandboxSpec) -> SandboxPool:
        if self._closed:
            raise SandboxError("the pools of sandboxes are closed: make new ones")
        key = spec.model_dump_json()
        if key not in self._pools:
            config = self._config
            make = partial(create, spec)
            self._pools[key] = SandboxPool(make, size=config.size, warm=config.warm, wait_s=config.wait_s)
        self._pools.move_to_end(key)
        return self._pools[key]

    async def _forget_idle(self) -> None:
        """Close the pools of kinds that were not leased for longest and are not in use, beyond `KINDS`."""
        for key, pool in list(self._pools.items()):
            if len(self._pools) <= KINDS:
                return
            if pool.idle:
                del self._pools[key]
                try:
                    await pool.close()
                except SandboxError as error:  # no fault of whoever leases another kind
                    logger.warning("%s", error)
                self._ended.append(pool.state)
