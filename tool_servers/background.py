"""Runs a blocking call in a thread that nobody waits for at the end."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(call: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run a blocking call in a daemon thread of its own.

    `asyncio.to_thread` is not for code that may hang: its few threads are shared by everything in the process, and the
    process cannot end before they do.

    Args:
        call: what to run; it goes on when the future is cancelled.
        name: of the thread, shown in stack dumps.

    Returns:
        Its result or exception. An exception that asks for the end of the process (`SystemExit`) is none of a
        thread's business and comes as a `RuntimeError`.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(_seen)
    context = contextvars.copy_context()

    def deliver(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None where T allows it

    def run() -> None:
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
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _seen(future: asyncio.Future[T]) -> None:
    """Take note of an exception whose caller has gone, so that asyncio does not complain."""
    if not future.cancelled():
        future.exception()
