"""Leases by spec: a pool for each kind, old kinds forgotten, everything counted."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from pydantic import ValidationError

from agar.errors import DeadlineError, SandboxError
from agar.sandbox import SandboxSpec
from agar.sandbox.config import PoolConfig
from agar.sandbox.pools import KINDS, SandboxPools


def kind(number):
    """A spec that differs from those of other numbers."""
    return SandboxSpec(backend="fake", env={"NUMBER": str(number)})


async def test_a_lease_is_made_of_its_spec_and_closed_after_it():
    async with SandboxPools() as pools:
        async with pools.lease(kind(1)) as one, pools.lease(kind(2)) as two:
            assert (one.spec, two.spec) == (kind(1), kind(2))
            assert pools.metrics()["sandbox/leased"] == 2
        assert one.closed
        assert two.closed
    found = pools.metrics()
    assert (found["sandbox/leases_count"], found["sandbox/deleted_count"], found["sandbox/leased"]) == (2, 2, 0)


async def test_the_size_bounds_each_kind():
    async with SandboxPools(PoolConfig(size=1, wait_s=0.05)) as pools, pools.lease(kind(1)):
        async with pools.lease(kind(2)):
            pass
        with pytest.raises(DeadlineError, match="no place for a sandbox became free"):
            async with pools.lease(kind(1)):
                pass


async def test_the_next_lease_of_a_kind_finds_one_started():
    async with SandboxPools(PoolConfig(warm=1)) as pools:
        async with pools.lease(kind(1)):
            async with asyncio.timeout(20):
                while not pools.metrics()["sandbox/warm"]:  # noqa: ASYNC110  the pool's own doing
                    await asyncio.sleep(0.001)
        async with pools.lease(kind(1)):
            assert pools.metrics()["sandbox/warm_leases_count"] == 1
    assert pools.metrics()["sandbox/warm"] == 0


async def test_kinds_that_nobody_uses_any_more_give_their_started_sandboxes_up_and_stay_counted():
    async with SandboxPools(PoolConfig(warm=1)) as pools, AsyncExitStack() as held:
        used = await held.enter_async_context(pools.lease(kind("used")))
        for number in range(2 * KINDS):
            async with pools.lease(kind(number)):
                pass
        assert not used.closed
        assert pools.metrics()["sandbox/warm"] <= KINDS + 1
        assert pools.metrics()["sandbox/leases_count"] == 2 * KINDS + 1


async def test_a_kind_whose_first_sandbox_still_starts_is_in_use(monkeypatch):
    begun, go = asyncio.Event(), asyncio.Event()
    pools = SandboxPools()

    async def slow(sandbox):
        begun.set()
        await go.wait()

    pools._pool(kind("slow"))._prepare = slow
    async with pools:

        async def lease_slowly():
            async with pools.lease(kind("slow")):
                return "leased"

        slowly = asyncio.create_task(lease_slowly())
        await begun.wait()
        for number in range(2 * KINDS):
            async with pools.lease(kind(number)):
                pass
        go.set()
        assert await slowly == "leased"


async def test_closing_ends_what_is_leased_and_refuses_more():
    pools = SandboxPools()
    async with pools.lease(kind(1)) as sandbox:
        await pools.close()
        assert sandbox.closed
    with pytest.raises(SandboxError, match="closed: make new ones"):
        async with pools.lease(kind(1)):
            pass


def test_more_warm_ones_than_places_are_refused():
    with pytest.raises(ValidationError, match="lower the first or raise the second"):
        PoolConfig(size=1, warm=2)
