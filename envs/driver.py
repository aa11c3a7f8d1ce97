"""An event loop in a thread of its own, so that synchronous callers can drive asynchronous environments."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from agar.errors import DeadlineError, EnvError
from agar.tool_servers.background import contained

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LoopThread:
    """One event loop in one daemon thread.

    The loop is the same for every call, so that what a call opens (sockets, processes, sandboxes) lives on for the
    next one; and the thread stays, so that processes which die with the thread that started them do not.

    Only a `SystemExit` in a task that the driven code made itself ends the loop before `close`.
    """

    def __init__(self, name: str) -> None:
        """Start the thread; `name` shows in stack dumps."""
        self._name = name
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._waiting: set[Future[Any]] = set()
        self._ending = threading.Lock()  # nothing is handed to a loop that is on its way out
        self._ended: str | None = None
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        self._loop, self._stop = self._started.result(timeout=30)

    @property
    def ended(self) -> bool:
        """Whether the loop has ended; nothing can be run on it any more."""
        return self._ended is not None

    def _main(self) -> None:
        try:
            with asyncio.Runner() as runner:  # on the way out it cancels what is left and closes the loop
                try:
                    runner.run(self._until_stopped())
                    self._end("it was closed")
                except BaseException as error:
                    self._end(f"a task that was made in it raised {error!r}")
        except BaseException as error:  # out of what was cancelled on the way out: nobody waits for it
            logger.warning("the event loop %s ended with %r", self._name, error)
        for future in tuple(self._waiting):
            with contextlib.suppress(InvalidStateError):  # it came to its own end meanwhile
                future.set_exception(self._gone())

    def _end(self, why: str) -> None:
        with self._ending:
            self._ended = why

    def _gone(self) -> EnvError:
        return EnvError(f"the event loop {self._name} has ended ({self._ended}), and what ran on it with it")

    async def _until_stopped(self) -> None:
        stop = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), stop))
        await stop.wait()

    def run(self, work: Coroutine[Any, Any, T], *, timeout_s: float, what: str) -> T:
        """Run a coroutine on the loop and wait for its result.

        Args:
            work: the coroutine.
            timeout_s: how long to wait for it.
            what: names the work in the error.

        Raises:
            DeadlineError: the deadline passed; the coroutine is cancelled.
            EnvError: the loop has ended, before or meanwhile.
            RuntimeError: the coroutine cancelled itself or wanted to end the process.
        """
        with self._ending:
            if self.ended:
                work.close()
                raise self._gone()
            future = asyncio.run_coroutine_threadsafe(contained(work), self._loop)
            self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        try:
            return future.result(timeout_s)
        except FutureCancelledError as error:
            raise (self._gone() if self.ended else EnvError(f"{what} was cancelled by its own code")) from error
        except FutureTimeoutError as error:
            if future.done():  # the work itself raised a TimeoutError
                raise
            future.cancel()
            raise DeadlineError(
                f"{what} gave no result within {timeout_s:g} s: raise the deadline or look there"
            ) from error

    def close(self) -> None:
        """Stop the loop and the thread; calling it again does nothing."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
