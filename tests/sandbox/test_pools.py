"""Leases by spec: made when they are asked for, or started beforehand; everything counted."""

import asyncio
from pathlib import Path

import pytest

from agar.errors import ConfigError, SandboxError
from agar.sandbox import SandboxSpec
from agar.sandbox.pools import KINDS, SandboxPools


def kind(number):
    """A spec that differs from those of other numbers."""
    return SandboxSpec(backend="fake", env={"NUMBER": str(number)})


async def until_warm(pools, count):
    async with asyncio.timeout(20):
        while pools.metrics()["sandbox/warm"] != count:  # noqa: ASYNC110  the pools' own doing
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("warm", [0, 2])
async def test_a_lease_is_made_of_its_spec_and_closed_after_it(warm):
    async with SandboxPools(warm=warm) as pools:
        async with pools.lease(kind(1)) as one, pools.lease(kind(2)) as two:
            assert (one.spec, two.spec) == (kind(1), kind(2))
            assert pools.metrics()["sandbox/leased"] == 2
        assert one.closed
        assert two.closed
        found = pools.metrics()
        assert (found["sandbox/leases_count"], found["sandbox/leased"]) == (2, 0)


async def test_the_next_lease_of_a_kind_finds_one_started():
    async with SandboxPools(warm=1) as pools:
        async with pools.lease(kind(1)):
            await until_warm(pools, 1)
        async with pools.lease(kind(1)):
            assert pools.metrics()["sandbox/warm_leases_count"] == 1
    assert pools.metrics()["sandbox/warm"] == 0


async def test_only_so_many_kinds_are_kept_warm_and_the_others_are_made_when_asked_for():
    async with SandboxPools(warm=1) as pools:
        for number in range(2 * KINDS):
            async with pools.lease(kind(number)) as sandbox:
                assert sandbox.spec == kind(number)
        await until_warm(pools, KINDS)
        assert pools.metrics()["sandbox/leases_count"] == 2 * KINDS


async def test_once_they_are_closed_nothing_is_leased():
    async with SandboxPools() as pools:
        pass
    with pytest.raises(SandboxError, match="closed: make new ones"):
        async with pools.lease(kind(1)):
            pass


@pytest.mark.parametrize("warm", [0, 1])
async def test_a_spec_that_nothing_can_be_made_of_is_refused(warm):
    async with SandboxPools(warm=warm) as pools:
        with pytest.raises(ConfigError, match="needs the gateway's unix socket"):
            async with pools.lease(SandboxSpec(backend="fake", network="gateway")):
                pass
        assert pools.metrics()["sandbox/leased"] == 0


async def test_one_that_is_not_gone_ends_nothing_that_the_run_has_done(caplog, monkeypatch):
    monkeypatch.setattr("agar.sandbox.pool._CLOSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr("agar.sandbox.pool._RETRY_S", 0.01)

    async def stuck(sandbox):
        raise SandboxError("was not gone")

    async with SandboxPools(warm=1) as pools:
        async with pools.lease(kind(1)):
            await until_warm(pools, 1)
        monkeypatch.setattr("agar.sandbox.fake.FakeSandbox.close", stuck)
    assert "were not gone" in caplog.text


@pytest.mark.sandbox
async def test_a_warm_one_has_the_files_that_its_spec_gives_it(tmp_path: Path):
    (tmp_path / "f").write_text("there")
    spec = SandboxSpec(workspace=tmp_path)
    async with SandboxPools(warm=1) as pools:
        for _ in range(2):
            async with pools.lease(spec) as sandbox:
                assert await sandbox.read("f") == b"there"
                await until_warm(pools, 1)
        assert pools.metrics()["sandbox/warm_leases_count"] == 1
