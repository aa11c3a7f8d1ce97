"""Deadlines of equal length for many waits at a time, under one timer.

A server gives each of its waits the same time, and nearly none runs out of it. `asyncio.timeout` sets a timer for each,
only to cancel it; here the one that began first is the one that ends first, and only it has a timer.
"""

import asyncio
from types import TracebackType
from typing import Self


class Wait:
    """One wait under a deadline; a context around it, that raises `TimeoutError` where its time has run out.

    As with `asyncio.timeout`, the task is cancelled, and only that cancellation becomes the error.
    """

    __slots__ = ("_before", "_deadlines", "_expired", "_own", "_seconds", "_task", "due_s")

    def __init__(self, deadlines: "Deadlines", seconds: float | None) -> None:
        self._deadlines, self._seconds, self._expired = deadlines, seconds, False
        self._own: asyncio.TimerHandle | None = None  # of a wait that is shorter than the others
        self.due_s = 0.0

    def __enter__(self) -> Self:
        """Begin to wait, in a task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a task to cancel")
        self._task, self._before = task, task.cancelling()
        self._deadlines._begin(self, loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait no more."""
        if self._own is None:
            del self._deadlines._waits[self]
        else:
            self._deadlines._short.discard(self)
            self._own.cancel()
        if self._expired and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> bool:
        """End it as if its time had run out; gives whether it had not before."""
        if self._expired:
            return False
        self._expired = True
        self._task.cancel()
        return True


class Deadlines:
    """The waits of one kind. They belong to one event loop at a time.

    Args:
        seconds: how long a wait may take that is not given a shorter time of its own.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waits: dict[Wait, None] = {}  # those of full length in the order of their beginning, thus of their end
        self._short: set[Wait] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def within(self, seconds: float | None = None) -> Wait:
        """A context for one wait.

        Args:
            seconds: how long it may take, if less than all others may.
        """
        return Wait(self, seconds)

    def expire(self) -> int:
        """End every wait that is under way as if its time had run out; gives how many."""
        return sum([wait.expire() for wait in (*self._waits, *self._short)])

    def _begin(self, wait: Wait, loop: asyncio.AbstractEventLoop) -> None:
        if wait._seconds is not None and wait._seconds < self._seconds:
            self._short.add(wait)
            wait._own = loop.call_later(wait._seconds, wait.expire)
            return
        wait.due_s = loop.time() + self._seconds
        self._waits[wait] = None
        if self._timer is None or self._loop is not loop:  # a timer dies with its loop
            self._loop, self._timer = loop, loop.call_at(wait.due_s, self._look)

    def _look(self) -> None:
        """Expire what is due, and look again when the next one is."""
        loop = asyncio.get_running_loop()
        now_s, self._timer = loop.time(), None
        for wait in self._waits:
            if wait.due_s > now_s and not wait._expired:
                self._timer = loop.call_at(wait.due_s, self._look)
                return
            wait.expire()
