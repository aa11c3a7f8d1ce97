import asyncio

import aiohttp
import numpy as np
import orjson
import pytest

from agar.errors import EngineRefused
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.control import EngineControl
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.engines.gate import Gate
from agar.rollout.engines.streamed import Retry, StreamedReply
from agar.types import Finish, Sampling, TellingEngine

IDS = np.array([1, 2, 3], dtype=np.int32)


def sampling(**changes):
    return Sampling(**{"max_tokens": 6, **changes})


def step(rows, total, *, finish=None, version=0):
    meta = {
        "output_token_logprobs": rows,
        "completion_tokens": total,
        "finish_reason": finish,
        "weight_version": str(version),
        "weight_versions": [{"version": str(version), "start": 0, "end": total}],
    }
    return b"data: %b\n\n" % orjson.dumps({"meta_info": meta})


async def told(client, **changes):
    """A streamed reply, and what was told of it step by step."""
    steps = []
    sampled = await client.generate_telling(IDS, sampling(**changes), routing_key="k", tell=steps.append)
    return sampled, steps


def same(one, other):
    return (
        all((getattr(one, name) == getattr(other, name)).all() for name in ("token_ids", "logprobs", "policy_versions"))
        and one.finish is other.finish
    )


@pytest.mark.parametrize("incremental", [True, False])
async def test_a_streamed_reply_is_the_plain_one_and_comes_step_by_step(incremental):
    async with (
        FakeEngine(version=4, token_s=0.01, incremental=incremental) as engine,
        RouterClient(engine.url, gate=Gate(4)) as client,
    ):
        plain = await client.generate(IDS, sampling(seed=7), routing_key="k")
        sampled, steps = await told(client, seed=7)
    assert same(plain, sampled)
    assert [id for ids in steps for id in ids] == plain.token_ids.tolist()
    assert len(steps) > 1
    assert isinstance(client, TellingEngine)


async def test_a_reply_under_a_schema_is_not_told():
    async with FakeEngine() as engine, RouterClient(engine.url) as client:
        sampled, steps = await told(client, json_schema="{}")
    assert (len(sampled), steps) == (6, [])


@pytest.mark.parametrize("kind", ["drop", "error"])
async def test_a_lost_stream_goes_on_behind_what_was_told(kind):
    prompts = []
    script = list(range(20, 26))
    async with (
        FakeEngine(script=lambda ids, params: prompts.append(ids) or script[len(ids) - 3 :], token_s=0.005) as engine,
        RouterClient(engine.url) as client,
    ):
        engine.fail(kind, after_tokens=3)
        sampled, steps = await told(client)
    assert sampled.token_ids.tolist() == script == [id for ids in steps for id in ids]
    kept = len(prompts[1]) - 3
    assert prompts == [[1, 2, 3], [1, 2, 3, *script[:kept]]]
    assert 0 < kept <= 3
    assert sampled.finish is Finish.LENGTH
    assert sum(client.counts[f"retried_{reason}"] for reason in ("connection", "cut_short", "http_500")) == 1


async def test_a_publish_cuts_a_stream_and_it_goes_on_under_the_new_version():
    steps = []
    async with (
        FakeEngine(token_s=0.02) as engine,
        aiohttp.ClientSession() as http,
        RouterClient(engine.url, gate=(gate := Gate(0))) as client,
    ):
        call = asyncio.create_task(
            client.generate_telling(IDS, sampling(max_tokens=12), routing_key="k", tell=steps.append)
        )
        async with asyncio.timeout(10):
            while len(steps) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        control = EngineControl(engine.url, http)
        gate.close()
        await control.pause()
        assert await gate.emptied(5)
        engine.version = 1
        await control.resume()
        gate.open(1)
        sampled = await call
    assert [id for ids in steps for id in ids] == sampled.token_ids.tolist()
    assert sorted(set(sampled.policy_versions.tolist())) == [0, 1]
    assert client.counts["continued"] == 1


async def test_cancelling_a_stream_ends_the_generation():
    steps = []
    async with FakeEngine(token_s=0.01) as engine, RouterClient(engine.url) as client:
        call = asyncio.create_task(
            client.generate_telling(IDS, sampling(max_tokens=1000), routing_key="k", tell=steps.append)
        )
        async with asyncio.timeout(10):
            while not steps:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            call.cancel()
            await asyncio.wait({call})
            while engine.running:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


def test_steps_may_come_in_any_pieces_of_bytes():
    steps = []
    reply = StreamedReply(0, steps.append)
    data = step([[-1.0, 5, None]], 1) + step([[-2.0, 6, None]], 2, finish={"type": "stop"}) + b"data: [DONE]\n\n"
    for at in range(len(data)):
        reply.feed(data[at : at + 1])
    assert steps == [[5], [6]]
    assert reply.whole()["meta_info"]["output_token_logprobs"] == [[-1.0, 5, None], [-2.0, 6, None]]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"data: {\n\n", "not_json"),
        (b"data: []\n\n", "not_json"),
        (step([[-1.0, 5, None]], 3), "lost_tokens"),
        (step([[-1.0, 5, None]], 1, version=2), "stale_version"),
        (b'data: {"error":{"message":"m","code":503}}\n\n', "http_503"),
        (b'data: {"error":{"message":"m"}}\n\n', "http_500"),
        (step([], 0, finish={"type": "abort", "status_code": 500, "message": "m"}), "http_500"),
    ],
)
def test_a_step_that_cannot_be_taken_ends_the_attempt_and_is_not_told(data, reason):
    steps = []
    with pytest.raises(Retry) as failed:
        StreamedReply(0, steps.append).feed(data)
    assert (failed.value.reason, steps) == (reason, [])


def test_a_stream_without_its_end_is_no_reply():
    reply = StreamedReply(0, lambda ids: None)
    reply.feed(step([[-1.0, 5, None]], 1))
    with pytest.raises(Retry, match="cut_short"):
        reply.whole()


def test_a_request_that_the_engine_refuses_in_its_stream_is_refused():
    with pytest.raises(EngineRefused, match="too long"):
        StreamedReply(0, lambda ids: None).feed(b'data: {"error":{"message":"too long","code":400}}\n\n')
    finish = {"type": "abort", "status_code": 400, "message": "too long"}
    with pytest.raises(EngineRefused, match="too long"):
        StreamedReply(0, lambda ids: None).feed(step([], 0, finish=finish))
