"""Runs blocking calls in threads that nobody waits for at the end."""

import asyncio
import contextlib
import contextvars
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class DaemonThread:
    """One daemon thread that runs blocking calls, one after the other, each to its end.

    `asyncio.to_thread` is not for code that may hang: its few threads are shared by everything in the process, and the
    process cannot end before they do. The thread starts with the first call and ends after `stop`, or when nobody holds
    this any more.
    """

    def __init__(self, *, name: str) -> None:
        """`name` is the thread's, shown in stack dumps."""
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False
        weakref.finalize(self, self._calls.put, None).atexit = False

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call once those before it have ended.

        Args:
            call: what to run; it goes on when the future is cancelled.

        Returns:
            Its result or exception. An exception that asks for the end of the process (`SystemExit`) is none of a
            thread's business and comes as a `RuntimeError`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(_seen)
        context = contextvars.copy_context()

        def work() -> None:
            result: T | None = None
            error: Exception | None = None
            try:
                result = context.run(call)
            except StopIteration as stop:  # a future cannot hold one
                error = RuntimeError(f"raised {stop!r}")
            except Exception as raised:
                error = raised
            except BaseException as raised:
                error = RuntimeError(f"raised {raised!r}")
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody wants it any more
                loop.call_soon_threadsafe(_deliver, future, result, error)

        self._calls.put(work)
        if not self._started:
            self._started = True
            threading.Thread(target=_serve, args=(self._calls,), name=self._name, daemon=True).start()
        return future

    def stop(self) -> None:
        """Let the thread end once the calls that it was given have. Idempotent; a later call starts another thread."""
        if self._started:
            self._started = False
            self._calls.put(None)


def in_thread(call: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run a single call in a daemon thread of its own; see `DaemonThread.run`."""
    thread = DaemonThread(name=name)
    future = thread.run(call)
    thread.stop()
    return future


def _serve(calls: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # what it holds is not to live until the next one comes


def _deliver(future: asyncio.Future[T], result: T | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]  # None where T allows it


def _seen(future: asyncio.Future[T]) -> None:
    """Take note of an exception whose caller has gone, so that asyncio does not complain."""
    if not future.cancelled():
        future.exception()
