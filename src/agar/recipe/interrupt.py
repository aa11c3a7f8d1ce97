"""Runs a coroutine under Ctrl-C and SIGTERM: first asks it to stop at a clean point, then cancels it."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

GRACE_S = 5.0
"""How long a first Ctrl-C lets the current step finish."""


class Stoppable(Protocol):
    """Work that can end at a clean point of its own."""

    def stop(self) -> bool:
        """Ask for an end at the next clean point; False if there is none to wait for."""
        ...

    @property
    def closing(self) -> bool:
        """True once that point is reached and only what was opened is being closed."""
        ...


class AtOnce:
    """Work without a clean point: the first signal cancels it."""

    closing = False

    def stop(self) -> bool:
        """There is nothing to wait for."""
        return False


class Interrupted(KeyboardInterrupt):
    """The work was cancelled by a signal; everything it had started has been closed."""


def run_interruptibly(
    work: Callable[[], Coroutine[Any, Any, T]], *, stoppable: Stoppable | None = None, grace_s: float = GRACE_S
) -> T:
    """Run `work` to its end.

    The first SIGINT or SIGTERM asks it to stop. If it has no clean point, or has not reached it `grace_s` seconds
    later, or at the second signal, the work is cancelled, once, and its contexts close what they opened; signals that
    come meanwhile do not disturb them.

    Args:
        work: makes the coroutine.
        stoppable: how it is asked; by default it is cancelled at once.
        grace_s: seconds between asking and cancelling.

    Returns:
        What the coroutine returned, also after a stop at a clean point.

    Raises:
        Interrupted: the work was cancelled.
    """
    return asyncio.run(_guard(work, stoppable or AtOnce(), grace_s))


async def _guard(work: Callable[[], Coroutine[Any, Any, T]], stoppable: Stoppable, grace_s: float) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work())
    asked = cancelled = False

    def cancel() -> None:
        # A second cancellation would strike the clean-up of the first, and leave behind what that was closing.
        nonlocal cancelled
        if cancelled:
            logger.warning("already closing what was opened; please wait")
            return
        cancelled = True
        task.cancel()

    def on_signal() -> None:
        nonlocal asked
        if asked or not stoppable.stop():
            cancel()
            return
        asked = True
        logger.warning("stopping at the end of this step (again to stop at once)")
        loop.call_later(grace_s, on_late)

    def on_late() -> None:
        if not stoppable.closing and not cancelled:
            logger.warning("the step did not end within %g s: stopping at once", grace_s)
            cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        return await task
    except asyncio.CancelledError:
        raise Interrupted from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
