"""The sandboxes of a run, with some of each kind started before they are asked for."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Self

from agar.errors import SandboxError
from agar.sandbox.base import Sandbox
from agar.sandbox.config import SandboxSpec
from agar.sandbox.factory import create
from agar.sandbox.pool import SandboxPool
from agar.types import Metrics

logger = logging.getLogger(__name__)

KINDS = 8
"""Kinds that are started beforehand, the first ones that are asked for. A task that brings a folder or an image of its
own is a kind of its own, and nobody asks for the same one again soon."""
_PLACES = 100_000  # the episodes that play at once are what bounds a run's sandboxes


class SandboxPools:
    """Leases sandboxes by their spec. To be used from one event loop, as an async context manager."""

    def __init__(self, *, warm: int = 0) -> None:
        """Nothing starts before the first lease.

        Args:
            warm: how many of each kind are kept started beside those in use.
        """
        self._warm = warm
        self._pools: dict[str, SandboxPool] = {}
        self._leased = self._leases = 0
        self._closed = False

    def lease(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox for as long as the context is open.

        Args:
            spec: what it is made of.

        Raises:
            ConfigError: the spec is one that no sandbox can be made of.
            SandboxError: on entry: these pools are closed, or what is done in it beforehand failed.
        """
        return self._counted(self._lease(spec))

    def metrics(self) -> Metrics:
        """`sandbox/<name>` of what there is now, `sandbox/<name>_count` of what there was since construction."""
        states = [pool.state for pool in self._pools.values()]
        return {
            "sandbox/leased": float(self._leased),
            "sandbox/leases_count": float(self._leases),
            "sandbox/warm": float(sum(state.warm for state in states)),
            "sandbox/warm_leases_count": float(sum(state.warm_leases for state in states)),
            "sandbox/failed_starts_count": float(sum(state.failed_starts for state in states)),
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete every pool's sandboxes. One that is not gone is logged: what the run did is done."""
        self._closed = True
        closing = asyncio.gather(*(pool.close() for pool in self._pools.values()), return_exceptions=True)
        for result in await asyncio.shield(closing):
            if isinstance(result, BaseException):
                logger.warning("%s", result)

    def _lease(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        key = spec.model_dump_json()
        if self._warm and key not in self._pools and len(self._pools) < KINDS:
            create(spec)  # refused here, where its caller is told
            self._pools[key] = SandboxPool(partial(create, spec), size=_PLACES, warm=self._warm)
        return self._pools[key].lease() if key in self._pools else create(spec)

    @asynccontextmanager
    async def _counted(self, lease: AbstractAsyncContextManager[Sandbox]) -> AsyncIterator[Sandbox]:
        if self._closed:
            raise SandboxError("the pools of sandboxes are closed: make new ones")
        async with lease as sandbox:
            self._leases += 1
            self._leased += 1
            try:
                yield sandbox
            finally:
                self._leased -= 1
