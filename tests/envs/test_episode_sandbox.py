"""The sandbox of an episode starts late, once, and always ends."""

import asyncio

import pytest

from agar.envs.episode_sandbox import EpisodeSandbox
from agar.errors import SandboxError
from agar.sandbox.config import SandboxSpec
from agar.sandbox.fake import FakeSandbox


class Maker:
    """Makes fake sandboxes and keeps them."""

    def __init__(self, *, setup_s: float = 0.0):
        self.made: list[FakeSandbox] = []
        self.setup_s = setup_s

    def __call__(self):
        self.made.append(FakeSandbox(SandboxSpec(backend="fake")))
        return self.made[-1]

    async def setup(self, sb):
        await asyncio.sleep(self.setup_s)
        await sb.write("a", "1")


async def test_nothing_is_made_before_the_first_use_nor_by_closing():
    maker = Maker()
    sandbox = EpisodeSandbox(maker, setup=maker.setup)
    await sandbox.close()
    await sandbox.close()
    assert maker.made == []
    with pytest.raises(SandboxError, match="the episode is over"):
        await sandbox.read("a")


async def test_simultaneous_first_uses_start_it_once():
    maker = Maker(setup_s=0.05)
    sandbox = EpisodeSandbox(maker, setup=maker.setup)
    assert await asyncio.gather(*(sandbox.read("a") for _ in range(5))) == [b"1"] * 5
    assert len(maker.made) == 1
    await sandbox.close()
    assert maker.made[0].closed


async def test_a_start_that_is_cancelled_leaves_nothing_open_and_is_not_repeated():
    maker = Maker(setup_s=60)
    sandbox = EpisodeSandbox(maker, setup=maker.setup)
    use = asyncio.create_task(sandbox.read("a"))
    await asyncio.sleep(0.05)
    use.cancel()
    with pytest.raises(asyncio.CancelledError):
        await use
    assert maker.made[0].closed
    assert not sandbox.started
    with pytest.raises(SandboxError, match="did not start"):
        await sandbox.read("a")


async def test_a_close_that_is_cancelled_still_closes():
    maker = Maker()
    sandbox = EpisodeSandbox(maker, setup=maker.setup)
    await sandbox.read("a")
    close, closed = maker.made[0].close, asyncio.Event()

    async def slow_close():
        await asyncio.sleep(0.05)
        await close()
        closed.set()

    maker.made[0].close = slow_close
    closing = asyncio.create_task(sandbox.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.wait_for(closed.wait(), 5)
    assert maker.made[0].closed
