import asyncio
import errno
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import AsyncExitStack, asynccontextmanager

import numpy as np
import pytest

from agar.errors import ConfigError, DeadlineError, EngineError, PublishError
from agar.rollout.engines.config import EnginesConfig
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.engines.faults import Faults
from agar.rollout.engines.keeper import Keeper
from agar.rollout.engines.pool import EnginePool
from agar.rollout.engines.server import EngineState
from agar.sandbox.guardian import parents
from agar.types import Sampling

IDS = np.array([1, 2, 3], dtype=np.int32)


def sampling(max_tokens=6):
    return Sampling(max_tokens=max_tokens)


@asynccontextmanager
async def attached(count=1, *, token_s=0.0, **settings):
    """Fake engines in this process, and a pool attached to them."""
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(FakeEngine(token_s=token_s)) for _ in range(count)]
        settings = {
            "router": "none" if count == 1 else "smg",
            "publish_timeout_s": 10,
            "health_interval_s": 0.2,
        } | settings
        config = EnginesConfig(urls=tuple(fake.url for fake in fakes), **settings)
        yield fakes, await stack.enter_async_context(EnginePool(config))


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 what a test watches has no event
            await asyncio.sleep(0.05)


async def test_published_version_is_on_every_token_and_the_receipt_proves_it(update):
    async with attached() as (_, pool):
        before = await pool.client().generate(IDS, sampling(), routing_key="k")
        receipt = await pool.receive(update("a", 7))
        after = await pool.client().generate(IDS, sampling(), routing_key="k")
    assert before.policy_versions.tolist() == [0] * 6
    assert after.policy_versions.tolist() == [7] * 6
    assert (receipt.version, receipt.digest, receipt.engines, receipt.missed) == (7, "a", ("engine-0",), {})
    assert receipt.probe_gap < 1e-6


async def test_checksum_changes_exactly_when_the_digest_does(update):
    async with attached() as (_, pool):
        sums = [(await pool.receive(update(name, i, copy=i))).checksum for i, name in enumerate("aab")]
        assert sums[0] == sums[1] != sums[2]
        with pytest.raises(PublishError, match="kept the old weights"):
            await pool.receive(update("b", 4, digest="says it is new"))
        with pytest.raises(PublishError, match="changed although the digest did not"):
            await pool.receive(update("c", 5, digest="b"))


async def test_wrong_probe_refuses_calls_until_a_delivery_succeeds(update):
    async with attached() as (_, pool):
        with pytest.raises(PublishError, match="nats off"):
            await pool.receive(update("a", 1, lie_nats=-0.01))
        with pytest.raises(EngineError, match="publish failed"):
            await pool.client().generate(IDS, sampling(), routing_key="k")
        await pool.receive(update("a", 2))
        sampled = await pool.client().generate(IDS, sampling(), routing_key="k")
    assert sampled.policy_versions.tolist() == [2] * 6


async def test_interrupted_calls_go_on_under_the_new_version(update):
    async with attached(token_s=0.01, on_publish="interrupt") as (_, pool):
        calls = [asyncio.create_task(pool.client().generate(IDS, sampling(40), routing_key=str(i))) for i in range(4)]
        await asyncio.sleep(0.2)
        await pool.receive(update("a", 1))
        replies = await asyncio.gather(*calls)
        assert pool.client().counts["continued"] == 4
    for reply in replies:
        versions = reply.policy_versions.tolist()
        assert versions == sorted(versions)
        assert set(versions) == {0, 1}
        assert len(versions) == 40


async def test_finish_waits_for_calls_in_flight(update):
    async with attached(token_s=0.01, on_publish="finish") as (_, pool):
        call = asyncio.create_task(pool.client().generate(IDS, sampling(40), routing_key="k"))
        await asyncio.sleep(0.1)
        await pool.receive(update("a", 1))
        assert call.done()
        assert set((await call).policy_versions.tolist()) == {0}


async def test_finish_has_a_deadline_after_which_the_old_version_is_served_on(update):
    async with attached(token_s=0.05, on_publish="finish", publish_timeout_s=0.2) as (_, pool):
        call = asyncio.create_task(pool.client().generate(IDS, sampling(20), routing_key="k"))
        await asyncio.sleep(0.1)
        with pytest.raises(DeadlineError, match="1 model calls did not end"):
            await pool.receive(update("a", 1))
        assert set((await call).policy_versions.tolist()) == {0}
        assert pool.version == 0


async def test_publishing_holds_calls_back_around_several_deliveries(update):
    async with attached() as (_, pool):
        async with pool.publishing("finish"):
            call = asyncio.create_task(pool.client().generate(IDS, sampling(), routing_key="k"))
            await pool.receive(update("a", 1))
            await pool.receive(update("b", 2))
            assert not call.done()
        assert set((await call).policy_versions.tolist()) == {2}
        await pool.drain()


async def test_a_hanging_reply_does_not_hold_up_an_interrupting_publish(update):
    async with attached(publish_timeout_s=1.0) as (fakes, pool):
        fakes[0].fail("hang")
        call = asyncio.create_task(pool.client().generate(IDS, sampling(), routing_key="k"))
        await asyncio.sleep(0.05)
        await pool.receive(update("a", 1))
        assert set((await call).policy_versions.tolist()) == {1}
        assert pool.counts["calls_cut"] >= 1


async def test_an_engine_that_answers_no_abort_holds_up_a_publish_no_longer_than_until_its_calls_are_cut(
    update, monkeypatch
):
    from agar.rollout.engines import receiver

    monkeypatch.setattr(receiver, "_ABORT_S", 0.05)
    monkeypatch.setattr(receiver, "_CUT_AFTER_S", 0.2)
    async with attached(publish_timeout_s=45, health_interval_s=60) as (fakes, pool):
        fakes[0].fail("hang")
        call = asyncio.create_task(pool.client().generate(IDS, sampling(), routing_key="k"))
        await until(lambda: fakes[0].requests["/generate"] == 1)
        fakes[0].fail("hang", path="/abort_request", count=1000)
        async with asyncio.timeout(30), pool.publishing():
            assert pool.counts["calls_cut"] == 1
            fakes[0].faults = Faults()
        assert len(await call) == 6


async def test_calls_that_end_when_they_are_cut_let_a_publish_go_on_although_its_time_is_over(update, monkeypatch):
    from agar.rollout.engines import receiver

    async with attached(publish_timeout_s=0.4, health_interval_s=60) as (fakes, pool):

        async def late(engine, *, timeout_s):  # as a machine that stalls
            await asyncio.sleep(0.5)

        monkeypatch.setattr(receiver, "_abort", late)
        fakes[0].fail("hang")
        call = asyncio.create_task(pool.client().generate(IDS, sampling(), routing_key="k"))
        await until(lambda: fakes[0].requests["/generate"] == 1)
        async with pool.publishing():
            assert pool.gate.inside == 0
        assert len(await call) == 6


async def test_engine_that_missed_a_publish_leaves_the_router_and_rejoins_with_current_weights(update):
    async with attached(2) as (fakes, pool):
        await pool.receive(update("a", 1))
        fakes[1].fail("stale", path="/update_weights_from_disk")
        receipt = await pool.receive(update("b", 2))
        assert receipt.engines == ("engine-0",)
        assert "kept the old weights" in receipt.missed["engine-1"]
        await until(lambda: pool.engines[1].state is EngineState.SERVING)
        assert fakes[1].model.weights == fakes[0].model.weights
        replies = [await pool.client().generate(IDS, sampling(), routing_key=str(i)) for i in range(12)]
        assert {int(v) for reply in replies for v in reply.policy_versions} == {2}
        assert pool.metrics()["engines/missed_count"] == 1.0


async def test_a_router_that_takes_no_engine_back_leaves_a_proven_publish_proven(update, monkeypatch):
    async with attached(2, health_interval_s=60) as (_, pool):
        left = [OSError("too many open files"), EngineError("the router restarts")]
        admit = pool.admit

        async def admit_later(engine):
            if engine is pool.engines[1] and left:
                raise left.pop()
            await admit(engine)

        monkeypatch.setattr(pool, "admit", admit_later)
        await pool.expel(pool.engines[1], "it missed a publish")
        receipt = await pool.receive(update("b", 2))
        assert (receipt.engines, receipt.missed) == (("engine-0",), {"engine-1": "the router restarts"})
        assert pool.version == 2
        await until(lambda: pool.engines[1].state is EngineState.SERVING)
        sampled = await pool.client().generate(IDS, sampling(), routing_key="k")
        assert set(sampled.policy_versions.tolist()) == {2}


@pytest.mark.parametrize("error", [EngineError("the router restarts"), OSError(errno.EMFILE, "no file")])
async def test_a_proven_publish_waits_until_an_engine_is_admitted(update, monkeypatch, error):
    async with attached(health_interval_s=60) as (_, pool):
        await pool.receive(update("a", 1))
        left, admit = [error, error], pool.admit  # the keeper's first try fails, too

        async def admit_later(engine):
            if left:
                raise left.pop()
            await admit(engine)

        monkeypatch.setattr(pool, "admit", admit_later)
        pool.engines[0].state = EngineState.OUT
        receipt = await pool.receive(update("b", 2))
        assert (receipt.engines, receipt.missed) == (("engine-0",), {})
        sampled = await pool.client().generate(IDS, sampling(), routing_key="k")
        assert set(sampled.policy_versions.tolist()) == {2}


async def test_a_proven_publish_that_no_engine_comes_to_serve_is_an_error_that_names_them(update, monkeypatch):
    async with attached(health_interval_s=60) as (_, pool):

        async def admit(engine):
            raise EngineError("the router is full")

        monkeypatch.setattr(pool, "admit", admit)
        monkeypatch.setattr(pool, "config", pool.config.model_copy(update={"start_timeout_s": 0.5}))
        pool.engines[0].state = EngineState.OUT
        with pytest.raises(PublishError, match=r"no engine serves it \(engine-0 is .*: the router is full\)"):
            await pool.receive(update("b", 2))
        with pytest.raises(EngineError, match="since a publish failed"):
            await pool.client().generate(IDS, sampling(), routing_key="k")


async def test_a_keeper_that_failed_refuses_calls_over_a_publish(update, monkeypatch):
    async def broken(keeper):
        raise RuntimeError("unforeseen")

    async with attached() as (_, pool):
        monkeypatch.setattr(Keeper, "_problem", broken)
        await until(lambda: pool._tasks[0].done())
        await pool.receive(update("a", 1))
        with pytest.raises(EngineError, match="unforeseen"):
            await pool.client().generate(IDS, sampling(), routing_key="k")


async def test_both_engines_behind_the_router_are_used_and_a_key_stays_with_its_engine():
    async with attached(2) as (fakes, pool):
        for i in range(16):
            await pool.client().generate(IDS, sampling(), routing_key=f"episode-{i}")
        assert min(fake.requests["/generate"] for fake in fakes) >= 3
        before = [fake.requests["/generate"] for fake in fakes]
        for _ in range(8):
            await pool.client().generate(IDS, sampling(), routing_key="episode-0")
        assert sorted(b - a for a, b in zip(before, (f.requests["/generate"] for f in fakes), strict=True)) == [0, 8]


async def test_attached_engine_that_dies_is_left_out_and_rejoins_when_it_is_back(update):
    async with attached(2, health_timeout_s=1.0) as (fakes, pool):
        await pool.receive(update("a", 1))
        await fakes[0].die()
        await until(lambda: pool.engines[0].state is not EngineState.SERVING)
        replies = [await pool.client().generate(IDS, sampling(), routing_key=str(i)) for i in range(8)]
        assert all(set(reply.policy_versions.tolist()) == {1} for reply in replies)
        fakes[0].model, fakes[0].version = FakeEngine().model, 0  # a fresh process would have its first weights
        await fakes[0].start()
        await until(lambda: pool.engines[0].state is EngineState.SERVING, 40)
        assert (fakes[0].model.weights, fakes[0].version) == (fakes[1].model.weights, 1)


async def test_attached_engine_is_stamped_with_the_pools_version():
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(FakeEngine(version="default"))
        config = EnginesConfig(urls=(fake.url,), router="none")
        pool = await stack.enter_async_context(EnginePool(config, version=5))
        sampled = await pool.client().generate(IDS, sampling(), routing_key="k")
    assert sampled.policy_versions.tolist() == [5] * 6


async def test_attached_engine_that_was_restarted_behind_our_back_is_found_and_brought_up_to_date(update):
    async with attached(2) as (fakes, pool):
        await pool.receive(update("a", 1))
        fakes[0].model, fakes[0].version = FakeEngine().model, "default"
        replies = [await pool.client().generate(IDS, sampling(), routing_key=str(i)) for i in range(8)]
        assert all(set(reply.policy_versions.tolist()) == {1} for reply in replies)
        await until(lambda: fakes[0].version == 1)
        assert fakes[0].model.weights == fakes[1].model.weights
        assert pool.client().counts["retried_stale_version"] >= 1


# ----------------------------------------------------------------------------------- engines that the pool starts


def started(weights, tmp_path, count=1, **settings):
    settings = {"router": "none" if count == 1 else "smg", "stop_grace_s": 1.0, **settings}
    config = EnginesConfig(backend="fake", count=count, publish_timeout_s=20, **settings)
    return EnginePool(config, weights("first"), run_dir=tmp_path / "run")


def _fails_once(monkeypatch, server):
    start, left = server.start, [OSError(errno.EMFILE, "Too many open files")]

    async def start_later(**arguments):
        if left:
            raise left.pop()
        return await start(**arguments)

    monkeypatch.setattr(server, "start", start_later)


async def test_killed_engine_restarts_and_rejoins_with_the_current_weights(weights, update, tmp_path):
    async with started(weights, tmp_path, 2, sglang={"token_s": 0.01}) as pool:
        await pool.receive(update("a", 1))
        calls = [asyncio.create_task(pool.client().generate(IDS, sampling(60), routing_key=str(i))) for i in range(8)]
        await asyncio.sleep(0.2)
        os.kill(pool.engines[0].pids()[1], signal.SIGKILL)
        replies = await asyncio.gather(*calls)
        assert {len(reply) for reply in replies} == {60}
        assert {int(v) for reply in replies for v in reply.policy_versions} == {1}
        await until(lambda: pool.counts["engine_recoveries"] == 1)
        assert pool.engines[0].state is EngineState.SERVING
        info = await pool.engines[0].control.info()
        assert (info["weight_version"], info["model_path"]) == ("1", str(weights("a")))
        pids = pool.pids()
        assert len(pids) == 4
    assert not set(pids) & set(parents())


async def test_an_engine_whose_restart_finds_no_file_descriptor_is_tried_again(weights, tmp_path, monkeypatch):
    async with started(weights, tmp_path, 2) as pool:
        _fails_once(monkeypatch, pool.engines[0])
        os.kill(pool.engines[0].pids()[1], signal.SIGKILL)
        await until(lambda: pool.counts["engine_recoveries"] == 1)
        assert len(await pool.client().generate(IDS, sampling(), routing_key="k")) == 6


async def test_publish_while_the_only_engine_restarts_waits_for_it(weights, update, tmp_path):
    async with started(weights, tmp_path) as pool:
        await pool.receive(update("a", 1))
        os.kill(pool.engines[0].pids()[1], signal.SIGKILL)
        await until(lambda: pool.engines[0].state is not EngineState.SERVING)
        receipt = await pool.receive(update("b", 2))
        assert receipt.engines == ("engine-0",)
        sampled = await pool.client().generate(IDS, sampling(), routing_key="k")
        assert set(sampled.policy_versions.tolist()) == {2}


async def test_engine_that_never_comes_back_is_given_up_and_calls_say_so(weights, tmp_path):
    pool = started(weights, tmp_path, restarts=1, call_timeout_s=30.0, attempt_timeout_s=10.0)
    async with pool:
        (tmp_path / "first-0" / "model.safetensors").unlink()
        (tmp_path / "first-0" / "config.json").unlink()  # it cannot load its weights any more
        os.kill(pool.engines[0].pids()[1], signal.SIGKILL)
        await until(lambda: pool.engines[0].state is EngineState.LOST)
        with pytest.raises(EngineError, match=r"(?s)every engine is lost.*holds no weights"):
            await pool.client().generate(IDS, sampling(), routing_key="k")
        assert pool.metrics()["engines/lost_count"] == 1


async def test_failed_start_says_why_and_leaves_nothing(weights, tmp_path):
    pool = started(weights, tmp_path, 2, sglang={"no_such_flag": 1})
    with pytest.raises(EngineError, match="unrecognized arguments: --no-such-flag"):
        await pool.__aenter__()
    assert pool.pids() == []


async def test_kill_9_of_the_owner_leaves_no_process(weights, tmp_path):
    owner = textwrap.dedent(
        f"""
        import asyncio
        from pathlib import Path
        from agar.rollout.engines import EnginePool, EnginesConfig
        async def main():
            config = EnginesConfig(backend="fake", count=2)
            async with EnginePool(config, Path({str(weights("first"))!r}), run_dir=Path({str(tmp_path)!r})) as pool:
                print(*pool.pids(), *pool._router._process.pids(), flush=True)
                await asyncio.sleep(600)
        asyncio.run(main())
        """
    )
    process = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True
    )
    with process:
        pids = set(map(int, (await asyncio.to_thread(process.stdout.readline)).split()))
        assert len(pids) == 6  # two guardians with an engine each, one with the router
        assert pids <= set(parents())
        process.kill()
    await until(lambda: not pids & set(parents()))


async def test_router_that_dies_is_started_again(weights, tmp_path):
    async with started(weights, tmp_path, 2) as pool:
        os.kill(pool._router._process.pids()[1], signal.SIGKILL)
        await until(lambda: pool.counts["router_deaths"] == 1)
        assert len(await pool.client().generate(IDS, sampling(), routing_key="k")) == 6


async def test_router_whose_restart_fails_is_tried_again(weights, tmp_path, monkeypatch):
    async with started(weights, tmp_path, 2) as pool:
        _fails_once(monkeypatch, pool._router)
        os.kill(pool._router._process.pids()[1], signal.SIGKILL)
        await until(lambda: pool.counts["router_deaths"] == 1)
        assert len(await pool.client().generate(IDS, sampling(), routing_key="k")) == 6
        assert not pool._tasks[-1].done()


@pytest.mark.parametrize("settings", [{"count": 2, "router": "none"}, {"urls": ("http://a", "http://a")}])
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ValueError, match="engine"):
        EnginesConfig(**settings)


async def test_python_without_sglang_is_named():
    with pytest.raises(ConfigError, match="has no SGLang"):
        await EnginePool(EnginesConfig(python=sys.executable)).__aenter__()
    with pytest.raises(ConfigError, match="does not run"):
        await EnginePool(EnginesConfig(python="/no/such/python")).__aenter__()
