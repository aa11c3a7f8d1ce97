"""Whatever was entered is closed, however the others end."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from agar.errors import EngineError
from agar.recipe.together import enter_together


def part(log, name, *, after=0.0, fails=False):
    @asynccontextmanager
    async def context():
        try:
            await asyncio.sleep(after)
            if fails:
                raise EngineError(name)
            log.append(f"{name} up")
            yield name
        finally:
            log.append(f"{name} down")

    return context()


async def test_values_come_in_order_and_all_are_closed():
    log: list[str] = []
    async with AsyncExitStack() as stack:
        assert await enter_together(stack, part(log, "a", after=0.02), part(log, "b")) == ["a", "b"]
    assert sorted(log) == ["a down", "a up", "b down", "b up"]


async def test_a_failure_ends_the_slow_one_at_once_and_closes_the_quick_one():
    log: list[str] = []

    async def start() -> None:
        async with AsyncExitStack() as stack:
            contexts = part(log, "quick"), part(log, "broken", after=0.02, fails=True), part(log, "slow", after=60)
            await enter_together(stack, *contexts)

    with pytest.raises(EngineError, match="broken"):
        await asyncio.wait_for(start(), 5)
    assert log == ["quick up", "broken down", "slow down", "quick down"]


async def test_cancelling_the_start_closes_what_was_entered():
    log: list[str] = []

    async def start() -> None:
        async with AsyncExitStack() as stack:
            await enter_together(stack, part(log, "quick"), part(log, "slow", after=60))

    task = asyncio.create_task(start())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["quick up", "slow down", "quick down"]
