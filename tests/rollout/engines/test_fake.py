import asyncio

import aiohttp
import numpy as np
import pytest

from agar.rollout.engines.fake import FakeEngine
from agar.rollout.engines.hashlm import HashLM, logprob, weights_digest
from agar.types import Sampled


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


async def generate(http, engine, ids=(1, 2, 3), *, n=1, extra=None, **params):
    body = {"input_ids": list(ids), "return_logprob": True, **(extra or {})}
    body["sampling_params"] = {"max_new_tokens": 6, "n": n, **params}
    async with http.post(engine.url + "/generate", json=body) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.json()


async def post(http, engine, path, **body):
    async with http.post(engine.url + path, json=body) as reply:
        return reply.status, await reply.json()


async def test_reply_reads_as_sampled_and_every_logprob_is_the_hash_of_its_whole_prefix(http):
    async with FakeEngine(weights="w", version=3) as engine:
        sampled = Sampled.from_generate(await generate(http, engine))
    assert list(sampled.policy_versions) == [3] * 6
    prefix = [1, 2, 3]
    for token, value in zip(sampled.token_ids.tolist(), sampled.logprobs.tolist(), strict=True):
        assert value == pytest.approx(logprob(prefix, token, "w"))
        prefix.append(token)


async def test_samples_follow_the_distribution_that_the_logprobs_state(http):
    model = HashLM(weights="w", vocab_size=8)
    async with FakeEngine(weights="w", vocab_size=8) as engine:
        replies = await generate(http, engine, n=4000, max_new_tokens=1)
    counts = np.bincount([reply["output_ids"][0] for reply in replies], minlength=8) / 4000
    assert np.abs(counts - np.exp(model.logprobs([1, 2, 3]))).max() < 0.04


async def test_same_seed_gives_the_same_replies_whatever_runs_beside_them(http):
    async with FakeEngine(seed=5) as engine:
        alone = [(await generate(http, engine))["output_ids"] for _ in range(3)]
    async with FakeEngine(seed=5) as engine:
        await generate(http, engine, ids=(9,))
        again = [(await generate(http, engine))["output_ids"] for _ in range(3)]
        pinned = [(await generate(http, engine, sampling_seed=7))["output_ids"] for _ in range(2)]
    assert alone == again
    assert len({tuple(ids) for ids in alone}) == 3
    assert pinned[0] == pinned[1]


async def test_script_stop_token_and_limit_end_a_reply(http):
    async with FakeEngine(script=lambda ids, params: [5, 6, 7] if ids[-1] == 3 else None) as engine:
        whole = await generate(http, engine)
        stopped = await generate(http, engine, stop_token_ids=[6])
        cut = await generate(http, engine, max_new_tokens=1)
    assert (whole["output_ids"], whole["meta_info"]["finish_reason"]["type"]) == ([5, 6, 7], "stop")
    assert (stopped["output_ids"], stopped["meta_info"]["finish_reason"]) == ([5, 6], {"type": "stop", "matched": 6})
    assert (cut["output_ids"], cut["meta_info"]["finish_reason"]["type"]) == ([5], "length")


async def test_prefill_gives_the_prompts_own_logprobs(http):
    async with FakeEngine(weights="w") as engine:
        reply = await generate(http, engine, max_new_tokens=0, extra={"logprob_start_len": 0})
    rows = reply["meta_info"]["input_token_logprobs"]
    assert rows[0] == [None, 1, None]
    assert [row[0] for row in rows[1:]] == pytest.approx(HashLM(weights="w").sequence_logprobs([1, 2, 3]).tolist())


async def test_pause_in_mode_abort_returns_partial_tokens_and_holds_new_requests(http):
    async with FakeEngine(token_s=0.01) as engine:
        running = asyncio.create_task(generate(http, engine, max_new_tokens=1000))
        await asyncio.sleep(0.1)
        await post(http, engine, "/pause_generation", mode="abort")
        reply = await running
        assert reply["meta_info"]["finish_reason"]["type"] == "abort"
        assert 0 < len(reply["output_ids"]) < 1000
        held = asyncio.create_task(generate(http, engine))
        done, _ = await asyncio.wait([held], timeout=0.1)
        assert not done
        await post(http, engine, "/continue_generation")
        assert len((await held)["output_ids"]) == 6


async def test_weights_held_in_place_change_in_the_middle_of_a_reply(http, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"new")
    async with FakeEngine(token_s=0.005) as engine:
        running = asyncio.create_task(generate(http, engine, max_new_tokens=20))
        await asyncio.sleep(0.04)
        await post(http, engine, "/pause_generation", mode="in_place")
        await post(http, engine, "/update_weights_from_disk", model_path=str(tmp_path), weight_version="1")
        await post(http, engine, "/continue_generation")
        spans = (await running)["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == ["0", "1"]
    assert spans[0]["end"] == spans[1]["start"]
    assert spans[1]["end"] == 20


async def test_checksum_changes_exactly_when_the_weights_do(http, tmp_path):
    for name, content in {"a": b"1", "b": b"2", "a_again": b"1"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    sums = []
    async with FakeEngine(model_dir=tmp_path / "a") as engine:
        for name in ("a", "b", "a_again"):
            await post(http, engine, "/update_weights_from_disk", model_path=str(tmp_path / name), weight_version="1")
            sums.append((await post(http, engine, "/weights_checker", action="checksum"))[1]["per_engine_checksum"])
        status, _ = await post(http, engine, "/update_weights_from_disk", model_path=str(tmp_path / "missing"))
    assert sums[0] != sums[1]
    assert sums[0] == sums[2]
    assert status == 400
    assert weights_digest(tmp_path / "a") == weights_digest(tmp_path / "a_again")


async def test_faults_strike_as_many_requests_as_they_say(http):
    async with FakeEngine() as engine:
        engine.fail("error", count=2)
        engine.fail("drop")
        assert [(await post(http, engine, "/generate", input_ids=[1]))[0] for _ in range(2)] == [500, 500]
        with pytest.raises(aiohttp.ClientError):
            await post(http, engine, "/generate", input_ids=[1])
        engine.fail("drop", after_tokens=2)
        with pytest.raises(aiohttp.ClientError):
            await generate(http, engine)
        engine.fail("hang")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await generate(http, engine)
        assert len((await generate(http, engine))["output_ids"]) == 6
        assert engine.requests["/generate"] == 6


async def test_a_dead_engine_refuses_and_comes_back_on_its_port(http):
    async with FakeEngine() as engine:
        url = engine.url
        engine.fail("die")
        with pytest.raises(aiohttp.ClientError):
            await generate(http, engine)
        await asyncio.sleep(0.05)
        with pytest.raises(aiohttp.ClientConnectorError):
            await generate(http, engine)
        await engine.start()
        assert engine.url == url
        assert len((await generate(http, engine))["output_ids"]) == 6


@pytest.mark.parametrize(
    "body", [{}, {"input_ids": "x"}, {"input_ids": [512]}, {"input_ids": [1], "sampling_params": {"temperature": -1}}]
)
async def test_malformed_requests_answer_400(http, body):
    async with FakeEngine() as engine:
        assert (await post(http, engine, "/generate", **body))[0] == 400
