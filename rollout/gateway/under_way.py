"""A call under way, and those who wait for it."""

import asyncio
from typing import Any

from agar.errors import SessionClosedError
from agar.rollout.gateway.call import ModelCall, Reply
from agar.rollout.gateway.live import LiveReply


class UnderWay:
    """One call under way, in a task of its own or in that of the caller that began it.

    Args:
        call: the call.
        live: the reply on its way, where it can be followed.

    Attributes:
        task: it runs there.
        hosted: whether that is its first caller's task.
        given_up: whether it was cancelled for good. Deadlines cancel it, too, and it goes on: `cancelling()` does not
            tell them apart.
    """

    __slots__ = ("_error", "_reply", "_waiting", "call", "given_up", "hosted", "live", "task")

    def __init__(self, call: ModelCall, live: LiveReply | None = None) -> None:
        self.call, self.live = call, live
        self.task: asyncio.Task[Any] | None = None
        self.hosted, self.given_up = False, False
        self._waiting: list[asyncio.Future[None]] = []
        self._reply: Reply | None = None
        self._error: BaseException | None = None

    @property
    def callers(self) -> int:
        """How many wait for it."""
        return len(self._waiting) + self.hosted

    @property
    def done(self) -> bool:
        """Whether it has come to its end; nobody may know it yet."""
        return self.task is not None and self.task.done()

    def give_up(self) -> None:
        """Cancel it for good; not from within, where it goes on and finds the session closed if it is."""
        if self.task is not None and self.task is not asyncio.current_task():
            self.given_up = True
            self.task.cancel()

    def end(self, reply: Reply | None, error: BaseException | None = None) -> None:
        """Let all who wait for it have its reply, or what it failed with."""
        if self._waiting:  # else it would hold the frames of its failure, and they hold it
            self._reply, self._error = reply, error
        for done in self._waiting:
            if not done.done():
                done.set_result(None)

    async def wait(self) -> Reply:
        """Its reply, once it is there; a caller that is cancelled leaves, and the call goes on.

        Raises:
            SessionClosedError: it was given up.
            Exception: whatever it failed with.
        """
        done = asyncio.get_running_loop().create_future()  # of this caller alone: a shield would need two more steps
        self._waiting.append(done)
        try:
            await done
        finally:
            self._waiting.remove(done)
        if self._reply is not None:
            return self._reply
        if self._error is None or isinstance(self._error, asyncio.CancelledError):
            raise closed_under_way()
        raise self._error


def closed_under_way() -> SessionClosedError:
    """What the callers of a call get that was given up."""
    return SessionClosedError("the session was sealed or hung up while the call was under way")
