"""Runs other people's code so that whatever it does stays its own: in threads that nobody waits for, and awaited."""

import asyncio
import contextlib
import contextvars
import inspect
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def contained(work: Awaitable[T]) -> T:
    """Await code that may do what only its caller should: cancel the task that runs it, or end the process.

    `CancelledError` means that somebody outside wants this task to end. Where nobody asked for that (the code awaited a
    task that it had cancelled itself), letting it through would end the caller without a word; and `SystemExit` in a
    task ends the whole event loop. Tasks that the code makes itself are out of reach: a `SystemExit` in one of them
    still ends the loop.

    Args:
        work: what to await.

    Raises:
        RuntimeError: it raised `CancelledError` by itself, `SystemExit`, or another `BaseException`.
        CancelledError: the task was cancelled from outside meanwhile.
        KeyboardInterrupt: a person wants the end.
        Exception: what it raised.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await work
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        raise RuntimeError("raised CancelledError, though nobody outside had cancelled it") from error
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise RuntimeError(f"raised {error!r}") from error


async def in_task(work: Awaitable[T], *, name: str) -> T:
    """`contained`, in a task of its own, so that code which cancels the task that it runs in ends itself only.

    Args:
        work: what to await.
        name: of the task, shown in stack dumps.
    """
    try:
        return await contained(asyncio.create_task(contained(work), name=name))
    finally:
        if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
            work.close()  # the task was cancelled before its first step: nobody will await it


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
        self._thread: threading.Thread | None = None
        self._started = False
        self._latest: threading.Event | None = None  # set when the latest call has ended
        weakref.finalize(self, self._calls.put, None).atexit = False

    @property
    def busy(self) -> bool:
        """Whether a call runs or waits, given up or not."""
        return self._latest is not None and not self._latest.is_set()

    def submit(self, call: Callable[[], T], *, context: contextvars.Context | None = None) -> "Future[T]":
        """Run a call once those before it have ended; for callers without an event loop.

        Args:
            call: what to run. One that was cancelled before its turn came is left out; one that runs goes on.
            context: the context variables that it sees and sets; a copy of the caller's by default.

        Returns:
            Its result or exception. An exception that asks for the end of the process (`SystemExit`) is none of a
            thread's business and comes as a `RuntimeError`.
        """
        future: Future[T] = Future()
        known = contextvars.copy_context() if context is None else context
        ended = self._latest = threading.Event()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                ended.set()
                return
            result, error = _outcome(known, call)
            ended.set()  # first: whoever has the result must not find this busy with it
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # None where T allows it

        self._calls.put(work)
        if not self._started:
            self._started = True
            arguments = (self._calls, self._thread)
            self._thread = threading.Thread(target=_serve, args=arguments, name=self._name, daemon=True)
            self._thread.start()
        return future

    def run(self, call: Callable[[], T], *, context: contextvars.Context | None = None) -> asyncio.Future[T]:
        """`submit`, awaited."""
        return awaited(self.submit(call, context=context))

    def stop(self) -> None:
        """Let the thread end once the calls that it was given have. Idempotent; a later call starts another thread."""
        if self._started:
            self._started = False
            self._calls.put(None)


def awaited(future: "Future[T]") -> asyncio.Future[T]:
    """What a thread does, to be awaited. Unlike `asyncio.wrap_future`, it may outlive the loop.

    Cancelling it cancels the call, where that does not run yet.
    """
    loop = asyncio.get_running_loop()
    wanted: asyncio.Future[T] = loop.create_future()
    wanted.add_done_callback(_seen)

    def give_up(outcome: asyncio.Future[T]) -> None:
        if outcome.cancelled():
            future.cancel()

    def hand_over(done: "Future[T]") -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody wants it any more
            loop.call_soon_threadsafe(_deliver, wanted, done)

    wanted.add_done_callback(give_up)
    future.add_done_callback(hand_over)
    return wanted


def in_thread(call: Callable[[], T], *, name: str) -> asyncio.Future[T]:
    """Run a single call in a daemon thread of its own; see `DaemonThread.run`."""
    thread = DaemonThread(name=name)
    future = thread.run(call)
    thread.stop()
    return future


def _serve(calls: "queue.SimpleQueue[Callable[[], None] | None]", before: threading.Thread | None) -> None:
    if before is not None:  # it was told to stop, and may not have come to that yet
        before.join()
    del before
    while (call := calls.get()) is not None:
        call()
        del call  # what it holds is not to live until the next one comes


def _outcome(context: contextvars.Context, call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What a call gives or raises, whatever it asks for."""
    try:
        return context.run(call), None
    except StopIteration as stop:  # an asyncio future cannot hold one
        return None, RuntimeError(f"raised {stop!r}")
    except Exception as raised:
        return None, raised
    except BaseException as raised:
        error = RuntimeError(f"raised {raised!r}")
        error.__cause__ = raised
        return None, error


def _deliver(wanted: asyncio.Future[T], done: "Future[T]") -> None:
    if wanted.done() or done.cancelled():
        return
    error = done.exception()
    if error is not None:
        wanted.set_exception(error)
    else:
        wanted.set_result(done.result())


def _seen(future: asyncio.Future[T]) -> None:
    """Take note of an exception whose caller has gone, so that asyncio does not complain."""
    if not future.cancelled():
        future.exception()
