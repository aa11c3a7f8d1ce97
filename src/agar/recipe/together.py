"""Enters several contexts at the same time, because each takes long to start."""

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any


async def enter_together(stack: AsyncExitStack, *contexts: AbstractAsyncContextManager[Any]) -> list[Any]:
    """Enter every context side by side; whatever was entered is closed with `stack`, also where another failed.

    Returns:
        What each gave on entry, in order.

    Raises:
        Exception: the first failure; the entries still under way are cancelled.
    """

    async def enter(context: AbstractAsyncContextManager[Any]) -> Any:
        value = await context.__aenter__()
        stack.push_async_exit(context)
        return value

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(enter(context)) for context in contexts]
    except BaseExceptionGroup as failures:
        first: BaseException = failures
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from failures
    return [task.result() for task in tasks]
