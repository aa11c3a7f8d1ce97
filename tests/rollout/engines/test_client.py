import asyncio

import numpy as np
import orjson
import pytest

from agar.errors import DeadlineError, EngineAborted, EngineError, EngineRefused
from agar.rollout.engines.client import ROUTING_KEY_HEADER, RouterClient
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.engines.gate import Gate
from agar.rollout.engines.hashlm import HashLM
from agar.rollout.engines.streamed import Retry
from agar.types import Finish, Sampling, SeeingEngine

IDS = np.array([1, 2, 3], dtype=np.int32)


def sampling(**changes):
    return Sampling(**{"max_tokens": 6, **changes})


async def test_call_returns_ids_logprobs_and_versions():
    async with FakeEngine(weights="w", version=4) as engine, RouterClient(engine.url, gate=Gate(4)) as client:
        sampled = await client.generate(IDS, sampling(), routing_key="k")
    assert sampled.finish is Finish.LENGTH
    assert sampled.policy_versions.tolist() == [4] * 6
    whole = [*IDS.tolist(), *sampled.token_ids.tolist()]
    assert sampled.logprobs.tolist() == pytest.approx(HashLM(weights="w").sequence_logprobs(whole)[2:].tolist())


async def test_a_client_that_is_told_another_address_calls_there():
    async with FakeEngine(version=4) as engine, RouterClient("http://127.0.0.1:9") as client:
        client.url = engine.url
        sampled = await client.generate(IDS, sampling(), routing_key="k")
    assert sampled.policy_versions.tolist() == [4] * 6


async def test_stop_token_is_kept_and_named_as_the_reason():
    async with FakeEngine(script=lambda ids, params: [8, 9, 10]) as engine, RouterClient(engine.url) as client:
        sampled = await client.generate(IDS, sampling(stop_token_ids=(9,)), routing_key="k")
    assert (sampled.token_ids.tolist(), sampled.finish) == ([8, 9], Finish.STOP)


async def test_stop_texts_and_a_schema_go_along_where_there_are_any():
    sent = []
    async with (
        FakeEngine(script=lambda ids, params: sent.append(dict(params)) or [9]) as engine,
        RouterClient(engine.url) as client,
    ):
        await client.generate(IDS, sampling(), routing_key="k")
        await client.generate(IDS, sampling(stop=("a", "b"), json_schema="{}"), routing_key="k")
    assert not {"stop", "json_schema"} & set(sent[0])
    assert (sent[1]["stop"], sent[1]["json_schema"]) == (["a", "b"], "{}")


async def test_images_go_along_where_there_are_any(monkeypatch):
    sent = []
    async with FakeEngine() as engine, RouterClient(engine.url) as client:
        post_ = client._post
        monkeypatch.setattr(client, "_post", lambda body, *rest: sent.append(orjson.loads(body)) or post_(body, *rest))
        await client.generate(IDS, sampling(), routing_key="k")
        await client.generate_seeing(IDS, sampling(), images=["data:a", "data:b"], routing_key="k")
    assert "image_data" not in sent[0]
    assert sent[1]["image_data"] == ["data:a", "data:b"]
    assert isinstance(client, SeeingEngine)


async def test_images_on_which_every_try_fails_are_refused(monkeypatch):
    async with FakeEngine() as engine, RouterClient(engine.url, retries=1) as client:
        post = client._post

        async def fail_on_images(body, *rest):
            if b"image_data" in body:
                raise Retry("http_500")
            return await post(body, *rest)

        monkeypatch.setattr(client, "_post", fail_on_images)
        with pytest.raises(EngineRefused, match="HTTP 500, each of 2 times: leave the images out"):
            await client.generate_seeing(IDS, sampling(), images=["data:cut"], routing_key="k")
        engine.fail("error", count=2)
        with pytest.raises(EngineError, match="'http_500'") as caught:
            await client.generate(IDS, sampling(), routing_key="k")
        assert not isinstance(caught.value, EngineRefused)


async def test_images_are_not_refused_for_what_an_engine_answers_that_fails_on_every_prompt():
    async with FakeEngine() as engine, RouterClient(engine.url, retries=1) as client:
        engine.fail("error", count=100)
        with pytest.raises(EngineError, match="'http_500_to_all'") as caught:
            await client.generate_seeing(IDS, sampling(), images=["data:whole"], routing_key="k")
        assert not isinstance(caught.value, EngineRefused)
        assert client.counts["retried_http_500_to_all"] == 2


async def test_images_beside_which_something_else_fails_are_not_refused():
    async with FakeEngine() as engine, RouterClient(engine.url, retries=1, attempt_timeout_s=0.3) as client:
        engine.fail("hang")
        engine.fail("error")
        with pytest.raises(EngineError, match="'http_500'") as caught:
            await client.generate_seeing(IDS, sampling(), images=["data:whole"], routing_key="k")
        assert not isinstance(caught.value, EngineRefused)


async def test_an_interrupted_constrained_reply_begins_anew():
    prompts = []
    async with (
        FakeEngine(script=lambda ids, params: prompts.append(ids) or list(range(10)), token_s=0.02) as engine,
        RouterClient(engine.url) as client,
    ):
        call = asyncio.create_task(client.generate(IDS, sampling(max_tokens=10, json_schema="{}"), routing_key="k"))
        async with asyncio.timeout(10):
            while not any(reply.tokens for reply in engine._inflight):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await post(client, "/abort_request", abort_all=True)
        assert (await call).token_ids.tolist() == list(range(10))
    assert prompts == [IDS.tolist()] * 2


async def test_failed_attempts_are_retried_and_counted_by_reason():
    async with FakeEngine() as engine, RouterClient(engine.url, attempt_timeout_s=0.2) as client:
        for kind in ("error", "drop", "hang"):
            engine.fail(kind)
        assert len(await client.generate(IDS, sampling(), routing_key="k")) == 6
        assert client.counts["retried_http_500"] == 1
        assert client.counts["retried_connection"] == 1
        assert client.counts["retried_attempt_timeout"] == 1
        assert client.metrics()["engines/retried_connection_count"] == 1.0


async def test_retries_end_with_the_reason():
    async with FakeEngine() as engine, RouterClient(engine.url, retries=2) as client:
        engine.fail("error", count=100)
        with pytest.raises(EngineError, match=r"failed 3 times.*http_500"):
            await client.generate(IDS, sampling(), routing_key="k")


async def test_absent_engine_is_waited_for_until_the_calls_deadline():
    async with FakeEngine() as engine, RouterClient(engine.url, call_timeout_s=0.6, attempt_timeout_s=0.5) as client:
        await engine.die()
        with pytest.raises(DeadlineError, match="connection"):
            await client.generate(IDS, sampling(), routing_key="k")
        client.call_timeout_s = 10
        call = asyncio.create_task(client.generate(IDS, sampling(), routing_key="k"))
        await asyncio.sleep(0.2)
        await engine.start()
        assert len(await call) == 6


async def test_refused_request_is_not_retried():
    async with FakeEngine(vocab_size=16) as engine, RouterClient(engine.url) as client:
        with pytest.raises(EngineRefused, match="HTTP 400"):
            await client.generate(np.array([99], dtype=np.int32), sampling(), routing_key="k")
        assert engine.requests["/generate"] == 1


@pytest.mark.parametrize("ids", [[], [-1], [512], [[1]]])
async def test_ids_that_would_kill_a_server_never_leave(ids):
    async with FakeEngine() as engine, RouterClient(engine.url, vocab_size=512) as client:
        with pytest.raises(EngineError):
            await client.generate(np.array(ids, dtype=np.int32), sampling(), routing_key="k")
        assert engine.requests["/generate"] == 0


async def test_interrupted_call_goes_on_under_new_weights_and_keeps_versions_per_token(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"new")
    gate = Gate(0)
    async with FakeEngine(weights="old", token_s=0.01) as engine, RouterClient(engine.url, gate=gate) as client:
        call = asyncio.create_task(client.generate(IDS, sampling(max_tokens=30), routing_key="k"))
        await asyncio.sleep(0.12)
        gate.close()
        await post(client, "/pause_generation", mode="abort")
        assert await gate.emptied(1)
        await post(client, "/update_weights_from_disk", model_path=str(tmp_path), weight_version="1")
        await post(client, "/continue_generation")
        gate.open(1)
        sampled = await call
        assert client.counts["continued"] == 1
    versions = sampled.policy_versions.tolist()
    cut = versions.index(1)
    assert len(sampled) == 30
    assert 0 < cut < 30
    assert versions == [0] * cut + [1] * (30 - cut)
    whole = [*IDS.tolist(), *sampled.token_ids.tolist()]
    old = HashLM(weights="old").sequence_logprobs(whole)[2:]
    new = engine.model.sequence_logprobs(whole)[2:]
    assert sampled.logprobs.tolist() == pytest.approx([*old[:cut].tolist(), *new[cut:].tolist()])


async def test_reply_whose_version_changed_in_the_middle_keeps_both(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"new")
    async with FakeEngine(token_s=0.01) as engine, RouterClient(engine.url) as client:
        call = asyncio.create_task(client.generate(IDS, sampling(max_tokens=20), routing_key="k"))
        await asyncio.sleep(0.08)
        await post(client, "/pause_generation", mode="in_place")
        await post(client, "/update_weights_from_disk", model_path=str(tmp_path), weight_version="1")
        await post(client, "/continue_generation")
        sampled = await call
    assert sorted(set(sampled.policy_versions.tolist())) == [0, 1]
    assert sampled.finish is Finish.LENGTH


async def test_tokens_of_another_version_than_the_one_served_are_thrown_away():
    async with FakeEngine(version=3) as engine, RouterClient(engine.url, gate=Gate(4), retries=1) as client:
        with pytest.raises(EngineError, match="stale_version"):
            await client.generate(IDS, sampling(), routing_key="k")
        assert client.counts["retried_stale_version"] == 2
        assert client.counts["tokens"] == 0


async def test_aborts_without_a_publish_are_continued_but_not_for_ever():
    async with FakeEngine(token_s=0.02) as engine, RouterClient(engine.url, retries=1) as client:
        call = asyncio.create_task(client.generate(IDS, sampling(max_tokens=10), routing_key="k"))
        await asyncio.sleep(0.1)
        await post(client, "/abort_request", abort_all=True)
        assert len(await call) == 10
        call = asyncio.create_task(client.generate(IDS, sampling(max_tokens=1000), routing_key="k"))
        for _ in range(10):
            await asyncio.sleep(0.05)
            await post(client, "/abort_request", abort_all=True)
        with pytest.raises(EngineAborted):
            await call


async def test_routing_key_travels_in_the_routers_header():
    seen = []

    async with FakeEngine() as engine, RouterClient(engine.url) as client:
        original = engine._generate

        async def spy(request):
            seen.append(request.headers.get(ROUTING_KEY_HEADER))
            return await original(request)

        await engine.die()
        engine._generate = spy
        await engine.start()
        engine.fail("drop", after_tokens=1)
        await client.generate(IDS, sampling(), routing_key="episode-7")
    assert seen == ["episode-7", "episode-7"]  # the router saw the connection break and chooses again by itself


async def test_call_that_an_engine_failed_changes_its_key_to_reach_another():
    seen = []
    async with FakeEngine() as engine, RouterClient(engine.url) as client:
        post = client._post

        async def spy(body, key, *rest):
            seen.append(key)
            return await post(body, key, *rest)

        client._post = spy
        engine.fail("error", count=2)
        await client.generate(IDS, sampling(), routing_key="a")
    assert seen == ["a", "a#1", "a#2"]


async def post(client, path, **body):
    async with client._session.post(client.url + path, json=body) as reply:
        assert reply.status == 200
