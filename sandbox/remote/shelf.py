"""The sandboxes of a server by name, each deleted when its user asks, or is not heard of any more."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from agar.errors import SandboxError
from agar.sandbox.base import Process, Sandbox

logger = logging.getLogger(__name__)
_LOOKS_PER_IDLE = 10


class NoSuchThing(SandboxError):
    """A name that is not, or no longer, known."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """A sandbox on the shelf.

    Attributes:
        sandbox: it.
        processes: what was started in it, by name.
        used: when it was last used, on the monotonic clock.
        calls: how many uses are under way.
    """

    sandbox: Sandbox
    processes: dict[str, Process] = field(default_factory=dict)
    used: float = field(default_factory=time.monotonic)
    calls: int = 0


class Shelf:
    """Keeps them; an async context manager."""

    def __init__(self, *, idle_s: float) -> None:
        """Nothing is kept yet.

        Args:
            idle_s: after how many seconds without use one is deleted.
        """
        self._idle_s = idle_s
        self._entries: dict[str, Entry] = {}
        self._coming = 0
        self._reaping: asyncio.Task[None] | None = None
        self.expired = 0
        """Sandboxes that were deleted because nobody used them."""

    def __len__(self) -> int:
        return len(self._entries) + self._coming

    def add(self, sandbox: Sandbox) -> str:
        """Keep one; its name is a secret as long as nobody tells it."""
        name = secrets.token_urlsafe(16)
        self._entries[name] = Entry(sandbox=sandbox)
        return name

    @contextlib.contextmanager
    def reserving(self, count: int) -> Iterator[None]:
        """Count so many more, which are being made, as being there."""
        self._coming += count
        try:
            yield
        finally:
            self._coming -= count

    @contextlib.contextmanager
    def use(self, name: str) -> Iterator[Entry]:
        """One of them, which is not idle meanwhile.

        Raises:
            NoSuchThing: there is none of that name.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise NoSuchThing("there is no such sandbox here: it was closed, or not used for too long: make a new one")
        entry.calls += 1
        try:
            yield entry
        finally:
            entry.calls -= 1
            entry.used = time.monotonic()

    async def remove(self, name: str) -> None:
        """Delete one and see it deleted; nothing where there is none of that name.

        Raises:
            SandboxError: it was not gone within its deadline; it is kept then, to be tried again.
        """
        entry = self._entries.get(name)
        if entry is not None:
            await entry.sandbox.close()
            self._entries.pop(name, None)

    async def __aenter__(self) -> "Shelf":
        self._reaping = asyncio.get_running_loop().create_task(self._reap())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reaping is not None:
            self._reaping.cancel()
            await asyncio.wait([self._reaping])
        failed = [name for name in list(self._entries) if not await self._try_to_remove(name)]
        if failed:
            raise SandboxError(f"{len(failed)} sandboxes were not gone after they were closed: look for them with ps")

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / _LOOKS_PER_IDLE)
            now = time.monotonic()
            for name, entry in list(self._entries.items()):
                if entry.calls == 0 and now - entry.used > self._idle_s and await self._try_to_remove(name):
                    self.expired += 1

    async def _try_to_remove(self, name: str) -> bool:
        try:
            await self.remove(name)
        except SandboxError as error:
            logger.warning("a sandbox is not gone, and is tried again: %s", error)
            return False
        return True
