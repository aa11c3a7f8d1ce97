"""Whoever is cancelled while something is made elsewhere leaves nothing behind there."""

import asyncio

import pytest

from agar.errors import SandboxError
from agar.sandbox.made import made_or_unmade


class Elsewhere:
    """Makes a thing once it may, whether or not somebody still waits."""

    def __init__(self):
        self.asked, self.may, self.things, self.fails = asyncio.Event(), asyncio.Event(), [], False

    async def make(self):
        self.asked.set()
        await self.may.wait()
        if self.fails:
            raise SandboxError("refused")
        self.things.append("thing")
        return "thing"

    async def unmake(self, thing):
        await asyncio.sleep(0)
        self.things.remove(thing)


async def test_what_was_made_is_the_callers():
    elsewhere = Elsewhere()
    elsewhere.may.set()
    assert await made_or_unmade(elsewhere.make(), elsewhere.unmake) == "thing"
    assert elsewhere.things == ["thing"]


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancelled_caller_leaves_nothing_there(cancels):
    elsewhere = Elsewhere()
    caller = asyncio.create_task(made_or_unmade(elsewhere.make(), elsewhere.unmake))
    await elsewhere.asked.wait()
    for _ in range(cancels):
        caller.cancel()
        await asyncio.sleep(0)
    assert not elsewhere.things
    elsewhere.may.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    async with asyncio.timeout(5):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110  the undoing goes on where its caller has left again
            await asyncio.sleep(0)
    assert elsewhere.things == []


async def test_what_cannot_be_removed_is_said_and_the_caller_is_cancelled_all_the_same(caplog):
    elsewhere = Elsewhere()

    async def fail(thing):
        raise SandboxError(f"{thing} stays")

    caller = asyncio.create_task(made_or_unmade(elsewhere.make(), fail))
    await elsewhere.asked.wait()
    caller.cancel()
    elsewhere.may.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert "could not be removed: thing stays" in caplog.text


@pytest.mark.parametrize("cancelled", [False, True])
async def test_where_nothing_could_be_made_nothing_is_unmade(cancelled):
    elsewhere = Elsewhere()
    elsewhere.fails = True
    caller = asyncio.create_task(made_or_unmade(elsewhere.make(), elsewhere.unmake))
    await elsewhere.asked.wait()
    if cancelled:
        caller.cancel()
        await asyncio.sleep(0)
    elsewhere.may.set()
    with pytest.raises(asyncio.CancelledError if cancelled else SandboxError):
        await caller
