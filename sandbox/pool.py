"""Leases of sandboxes: at most so many at a time, some started beforehand, each deleted and seen deleted.

A sandbox serves one lease and is never handed on, for nothing that a program left may meet the next one. What takes
time is done before it is asked for: starting it, and laying out its files.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agar.errors import AgarError, ConfigError, DeadlineError, SandboxError
from agar.sandbox.base import Sandbox, Snapshot

logger = logging.getLogger(__name__)
_RETRY_S = 1.0
_CLOSE_TIMEOUT_S = 120.0
_STARTING = "agar-pool-start"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """What a pool has done and is doing.

    Attributes:
        leased: sandboxes in use.
        warm: sandboxes started and not in use.
        waiting: callers who wait for a place.
        leases: how many leases there were.
        warm_leases: how many of them found a started sandbox.
        deleted: sandboxes that were seen deleted.
        failed_starts: sandboxes that could not be made, started beforehand or prepared.
        condemned: sandboxes that are not gone although they were closed; they keep their places until they are.
        wait_s: seconds that leases have waited for their sandboxes, in all.
    """

    leased: int
    warm: int
    waiting: int
    leases: int
    warm_leases: int
    deleted: int
    failed_starts: int
    condemned: int
    wait_s: float


class SandboxPool:
    """A bounded number of sandboxes. To be used from one event loop, as an async context manager."""

    def __init__(
        self,
        make: Callable[[], Sandbox],
        *,
        size: int,
        warm: int = 0,
        files: Snapshot | None = None,
        prepare: Callable[[Sandbox], Awaitable[None]] | None = None,
        wait_s: float = 300.0,
    ) -> None:
        """Nothing starts before it is entered.

        Args:
            make: makes a sandbox that has not started.
            size: how many may exist at one time, started ones included.
            warm: how many are kept started beside those in use, as far as `size` allows.
            files: what each has in it.
            prepare: what is done in each before it is handed out.
            wait_s: how long a lease waits for a place, in seconds.

        Raises:
            ConfigError: `size` or `warm` is impossible.
        """
        if size < 1 or not 0 <= warm <= size:
            raise ConfigError(f"size = {size}, warm = {warm}: a pool needs a place, and at most as many warm as places")
        self._make, self._size, self._warm = make, size, warm
        self._files, self._prepare, self._wait_s = files, prepare, wait_s
        self._changed = asyncio.Condition()
        self._used = 0  # places: leased, ready, being started or deleted
        self._ready: deque[Sandbox] = deque()
        self._leased: set[Sandbox] = set()
        self._condemned: set[Sandbox] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._waiting = self._leases = self._warm_leases = self._deleted = self._failed_starts = 0
        self._waited_s = 0.0

    @property
    def state(self) -> PoolState:
        """Counts, for metrics."""
        return PoolState(
            leased=len(self._leased),
            warm=len(self._ready),
            waiting=self._waiting,
            leases=self._leases,
            warm_leases=self._warm_leases,
            deleted=self._deleted,
            failed_starts=self._failed_starts,
            condemned=len(self._condemned),
            wait_s=self._waited_s,
        )

    @contextlib.asynccontextmanager
    async def lease(self) -> AsyncIterator[Sandbox]:
        """A fresh sandbox for as long as the context is open; it is seen deleted before its place is given away.

        Raises:
            DeadlineError: no place became free in time.
            SandboxError: what is to be in it beforehand could not be put there, or the pool is closed. Without such
                things, one that is not warm starts with its first use.
        """
        began = time.monotonic()
        sandbox = await self._take()
        self._waited_s += time.monotonic() - began
        self._leases += 1
        self._leased.add(sandbox)
        self._refill()
        try:
            yield sandbox
        finally:
            self._leased.discard(sandbox)
            await asyncio.shield(self._in_background(self._delete(sandbox)))
            self._refill()

    async def close(self) -> None:
        """Delete every sandbox, leased ones too, and see them deleted. A second call does nothing.

        Raises:
            SandboxError: some were not gone within the deadline; the message says how many.
        """
        self._closed = True
        await self._tell()
        for task in self._tasks:
            if task.get_name() == _STARTING:
                task.cancel()
        while self._ready:
            self._in_background(self._delete(self._ready.popleft()))
        for sandbox in list(self._leased):
            self._in_background(self._shut(sandbox))
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        while self._tasks and time.monotonic() < deadline:
            await asyncio.wait(set(self._tasks), timeout=deadline - time.monotonic())
        if self._tasks or self._condemned:
            raise SandboxError(
                f"{len(self._condemned) or len(self._tasks)} sandboxes were not gone {_CLOSE_TIMEOUT_S:g} s after they "
                "were closed: look for stuck processes with ps"
            )

    async def __aenter__(self) -> Self:
        self._refill()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.ensure_future(self.close()))

    async def _take(self) -> Sandbox:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_s), self._changed:
                await self._changed.wait_for(lambda: self._closed or self._ready or self._used < self._size)
                if self._closed:
                    raise SandboxError("the pool of sandboxes is closed: make a new one")
                if self._ready:
                    self._warm_leases += 1
                    return self._ready.popleft()  # it keeps the place that it has
                self._used += 1
        except TimeoutError as error:
            raise DeadlineError(
                f"no place for a sandbox became free within {self._wait_s:g} s: {len(self._leased)} of {self._size} "
                f"are leased, {len(self._condemned)} are not gone: raise `size`, or look at what holds them"
            ) from error
        finally:
            self._waiting -= 1
        return await self._start()

    async def _start(self, *, beforehand: bool = False) -> Sandbox:
        """Make a sandbox in a place that is taken, and give the place back where that fails.

        One that nobody has asked for yet is opened; another opens with the first thing that is done in it.
        """
        try:
            sandbox = self._make()
        except BaseException:
            self._failed_starts += 1
            self._used -= 1
            await self._tell()
            raise
        try:
            if self._closed:
                raise SandboxError("the pool of sandboxes is closed: make a new one")
            if self._files is not None:
                await sandbox.restore(self._files)
            elif beforehand:
                await sandbox.exec(["true"])  # opens it, and changes nothing that an agent could see
            if self._prepare is not None:
                await self._prepare(sandbox)
        except BaseException:
            self._failed_starts += 1
            await asyncio.shield(self._in_background(self._delete(sandbox)))
            raise
        return sandbox

    def _refill(self) -> None:
        """Start what should be warm and has a place that nobody waits for, beside everything else."""
        missing = self._warm - len(self._ready) - sum(task.get_name() == _STARTING for task in self._tasks)
        for _ in range(min(missing, self._size - self._used) if not self._closed and not self._waiting else 0):
            self._used += 1
            self._in_background(self._warm_up(), name=_STARTING)

    async def _warm_up(self) -> None:
        try:
            sandbox = await self._start(beforehand=True)
        except AgarError as error:  # whoever leases one will see why
            logger.warning("a sandbox could not be started beforehand: %s", error)
            return
        self._ready.append(sandbox)
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _delete(self, sandbox: Sandbox) -> None:
        """Close a sandbox until it is gone, then give its place away."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        while True:
            try:
                await sandbox.close()
            except SandboxError as error:
                self._condemned.add(sandbox)
                logger.warning("a sandbox is not gone, and keeps its place: %s", error)
                if time.monotonic() > deadline:
                    return
                await asyncio.sleep(_RETRY_S)
            else:
                break
        self._condemned.discard(sandbox)
        self._deleted += 1
        self._used -= 1
        await self._tell()

    async def _shut(self, sandbox: Sandbox) -> None:
        """Close a leased sandbox under its user, whose lease then ends it."""
        with contextlib.suppress(SandboxError):
            await sandbox.close()

    def _in_background(self, work: Coroutine[None, None, None], *, name: str | None = None) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
