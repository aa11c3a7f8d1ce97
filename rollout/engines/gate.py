"""The gate in front of the engines: open while they serve one published version, closed while weights change."""

import asyncio

from agar.errors import DeadlineError, EngineError


class Gate:
    """Counts the calls inside and holds new ones back while it is closed.

    Args:
        version: the policy version served while it is open; None where nobody keeps versions.
    """

    def __init__(self, version: int | None = None) -> None:
        self.version = version
        self.inside = 0
        self._broken: EngineError | None = None
        self._broken_for_good: EngineError | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def closed(self) -> bool:
        """True while calls are held back."""
        return not self._open.is_set()

    def close(self) -> None:
        """Hold back new calls; those inside go on."""
        self._open.clear()

    def open(self, version: int | None) -> None:
        """Let calls in, under `version`."""
        self.version = version
        self._open.set()

    def break_with(self, error: EngineError, *, for_good: bool = False) -> None:
        """Refuse every call with `error`, those that wait now too: until `repair`, or `for_good`."""
        if for_good:
            self._broken_for_good = error
        else:
            self._broken = error
        self._open.set()

    def repair(self) -> None:
        """Refuse calls no more, unless the gate is broken for good."""
        self._broken = None

    async def enter(self, timeout_s: float) -> int | None:
        """Wait until the gate is open, then count as inside, until `leave`; gives the version served.

        Raises:
            DeadlineError: the gate stayed closed for `timeout_s`.
            EngineError: the gate is broken.
        """
        if self.closed:
            try:
                async with asyncio.timeout(timeout_s):
                    while self.closed:  # it may have closed again before this waiter had its turn
                        await self._open.wait()
            except TimeoutError:
                raise DeadlineError(
                    f"a model call waited {timeout_s:.0f} s for a weight publish to end (version {self.version} was "
                    "served before it): look at the trainer's publish, or raise engines.publish_timeout_s"
                ) from None
        broken = self._broken_for_good or self._broken
        if broken is not None:
            raise broken
        self.inside += 1
        self._empty.clear()
        return self.version

    def leave(self) -> None:
        """Count as inside no more."""
        self.inside -= 1
        if not self.inside:
            self._empty.set()

    async def emptied(self, timeout_s: float) -> bool:
        """Wait until no call is inside; False when `timeout_s` passed first."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
