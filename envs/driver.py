"""An event loop in a thread of its own, so that synchronous callers can drive asynchronous environments."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from agar.errors import DeadlineError

T = TypeVar("T")


class LoopThread:
    """One event loop in one daemon thread.

    The loop is the same for every call, so that what a call opens (sockets, processes, sandboxes) lives on for the
    next one; and the thread stays, so that processes which die with the thread that started them do not.
    """

    def __init__(self, name: str) -> None:
        """Start the thread; `name` shows in stack dumps."""
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        self._loop, self._stop = self._started.result(timeout=30)

    def _main(self) -> None:
        with asyncio.Runner() as runner:  # on the way out it cancels what is left and closes the loop
            runner.run(self._until_stopped())

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
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
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
