"""Making what somebody else keeps: a container, a machine."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def made_or_unmade(making: Coroutine[Any, Any, T], unmake: Callable[[T], Awaitable[object]]) -> T:
    """Ask another process to make something, and have it unmade where the caller is cancelled meanwhile.

    The other side goes on making it when the caller leaves, and only its answer says what there is to remove.

    Args:
        making: asks for it.
        unmake: removes it.

    Returns:
        What `making` gave.
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
    if not asked.cancelled() and asked.exception() is None:
        await unmake(asked.result())
