"""Making what somebody else keeps: a container, a machine."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def made_or_unmade(making: Coroutine[Any, Any, T], unmake: Callable[[T], Awaitable[object]]) -> T:
    """Ask another process to make something, and have it unmade where the caller is cancelled meanwhile.

    The other side goes on making it when the caller leaves, and only its answer says what there is to remove.

    Args:
        making: asks for it.
        unmake: removes it.

    Returns:
        What `making` gave.

    Raises:
        CancelledError: the caller was cancelled. It comes when what was made has been unmade, or that has failed, which
            is logged.
    """
    asked = asyncio.ensure_future(making)
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        if not asked.cancelled():
            await asyncio.shield(asyncio.ensure_future(_undo(asked, unmake)))
        raise


async def _undo(asked: "asyncio.Future[T]", unmake: Callable[[T], Awaitable[object]]) -> None:
    await asyncio.wait({asked})
    if asked.cancelled() or asked.exception() is not None:
        return
    try:
        await unmake(asked.result())
    except Exception as error:  # the caller is to be cancelled, whatever becomes of this
        logger.warning("what was made for a caller that has left could not be removed: %s", error)
