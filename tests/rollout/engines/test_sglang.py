"""Real SGLang: one pair of engines behind smg serves the whole file."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import openai
import pytest
import pytest_asyncio

from agar.errors import EngineError, PublishError
from agar.ledger.families import family_for
from agar.ledger.tokenizer import Tokenizer
from agar.ledger.toy import write_toy_model
from agar.rollout.engines.config import EnginesConfig
from agar.rollout.engines.pool import EnginePool
from agar.rollout.engines.server import EngineState
from agar.rollout.gateway.server import Gateway
from agar.sandbox.guardian import parents
from agar.types import Finish, Probe, Sampling, WeightUpdate

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="session")]

IDS = np.array([5, 6, 7, 8], dtype=np.int32)
VERSIONS = iter(range(1, 1000))


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def pool(tiny_models, engine_python, tmp_path_factory):
    config = EnginesConfig(count=2, python=engine_python, health_interval_s=5, publish_timeout_s=60)
    async with EnginePool(config, tiny_models[0], run_dir=tmp_path_factory.mktemp("engines")) as running:
        yield running
        pids = running.pids()
        assert len(pids) >= 8  # each: guardian, server, scheduler, detokenizer
    assert not set(pids) & set(parents())


@pytest.fixture
def update(tiny_models, oracle):
    def make(which, *, digest=None):
        probe = Probe(token_ids=np.arange(20, 60, dtype=np.int32), logprobs=oracle(which, range(20, 60)))
        payload = {"directory": str(tiny_models[which])}
        digest = digest or str(which)
        return WeightUpdate(
            policy="main", version=next(VERSIONS), transport="disk", payload=payload, digest=digest, probe=probe
        )

    return make


def ask(pool, number, max_tokens=40):
    return pool.client().generate(IDS, Sampling(max_tokens=max_tokens), routing_key=f"episode-{number}")


async def requests_by_engine(pool):
    return [engine.log.read_text().count("POST /generate") for engine in pool.engines]


async def test_sampled_logprobs_are_those_of_hugging_face(pool, update, oracle):
    await pool.receive(update(0))
    sampled = await ask(pool, 0)
    whole = [*IDS.tolist(), *sampled.token_ids.tolist()]
    assert np.abs(sampled.logprobs - oracle(0, whole)[len(IDS) - 1 :]).max() < 5e-5


async def test_a_text_ends_a_reply_and_touches_no_logprob(pool, update, oracle):
    await pool.receive(update(0))
    letters = frozenset("abcdefghijklmnopqrstuvwxyz")
    sampling = Sampling(max_tokens=400, stop=tuple(sorted(letters)))
    replies = await asyncio.gather(
        *[pool.client().generate(IDS, sampling, routing_key=f"letter-{number}") for number in range(32)]
    )
    tokenizer = Tokenizer.load(pool.model_dir)
    for sampled in replies:
        assert (sampled.finish, len(sampled) < 400) == (Finish.STOP, True)
        # the text is in the record, and nothing after the token that has it, be that a syllable or a control token
        said = [bool(letters & set(tokenizer.decode([token]))) for token in sampled.token_ids]
        assert said == [False] * (len(said) - 1) + [True]
        whole = [*IDS.tolist(), *sampled.token_ids.tolist()]
        assert np.abs(sampled.logprobs - oracle(0, whole)[len(IDS) - 1 :]).max() < 5e-5


async def test_a_schema_holds_and_its_logprobs_are_not_the_models(pool, update, oracle):
    await pool.receive(update(0))
    schema = json.dumps({"type": "string", "enum": ["gold", "silver"]})
    sampled = await pool.client().generate(IDS, Sampling(max_tokens=40, json_schema=schema), routing_key="k")
    assert sampled.finish is Finish.STOP
    text = Tokenizer.load(pool.model_dir).decode(sampled.token_ids)
    assert json.loads(text.removesuffix("<|im_end|>")) in ("gold", "silver")
    whole = [*IDS.tolist(), *sampled.token_ids.tolist()]
    own = oracle(0, whole)[len(IDS) - 1 :]
    assert (sampled.logprobs > own - 1e-4).all()  # renormalised over what the schema allows: never less likely
    assert sampled.logprobs.sum() > own.sum() + 1


async def test_both_engines_behind_the_router_are_used_and_a_key_stays_with_its_engine(pool):
    before = await requests_by_engine(pool)
    await asyncio.gather(*[ask(pool, i, 4) for i in range(48)])
    spread = np.subtract(await requests_by_engine(pool), before)
    assert spread.min() >= 3
    before = await requests_by_engine(pool)
    await asyncio.gather(*[ask(pool, 0, 4) for _ in range(8)])
    assert sorted(np.subtract(await requests_by_engine(pool), before)) == [0, 8]


async def test_publish_stamps_tokens_and_the_checksum_changes_exactly_when_weights_do(pool, update):
    sums = []
    for which in (0, 0, 1):
        sent = update(which)
        receipt = await pool.receive(sent)
        assert receipt.engines == ("engine-0", "engine-1")
        assert receipt.probe_gap < 5e-5
        sums.append(receipt.checksum)
        replies = await asyncio.gather(*[ask(pool, i, 8) for i in range(6)])
        assert {int(v) for reply in replies for v in reply.policy_versions} == {sent.version}
    assert sums[0] == sums[1] != sums[2]


async def test_interrupted_calls_go_on_under_the_new_weights(pool, update, oracle):
    await pool.receive(update(0))
    old = pool.version
    calls = [asyncio.create_task(ask(pool, i, 1000)) for i in range(6)]
    await asyncio.sleep(0.6)
    new = (await pool.receive(update(1))).version
    replies = await asyncio.gather(*calls)
    cut_replies = [reply for reply in replies if new in reply.policy_versions]
    assert cut_replies, [(len(reply), reply.finish, reply.policy_versions[-1]) for reply in replies]
    for reply in cut_replies:
        versions = reply.policy_versions.tolist()
        cut = versions.index(new)
        assert versions == [old] * cut + [new] * (len(versions) - cut)
        whole = [*IDS.tolist(), *reply.token_ids.tolist()]
        expected = [oracle(0, whole)[3 : 3 + cut], oracle(1, whole)[3 + cut :]]
        assert np.abs(reply.logprobs - np.concatenate(expected)).max() < 2e-4


async def test_wrong_probe_and_lying_digest_are_caught(pool, update):
    await pool.receive(update(1))
    with pytest.raises(PublishError, match="kept the old weights"):
        await pool.receive(update(1, digest="other"))
    with pytest.raises(EngineError, match="publish failed"):
        await ask(pool, 0)
    await serving(pool)  # back on the weights before it, although calls are still refused
    receipt = await pool.receive(update(0))
    assert receipt.engines == ("engine-0", "engine-1")
    assert len(await ask(pool, 0, 4)) >= 1


async def serving(pool):
    async with asyncio.timeout(200):
        while any(engine.state is not EngineState.SERVING for engine in pool.engines):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def test_killed_engine_loses_no_call_and_returns_with_current_weights(pool, update):
    sent = update(1)
    await pool.receive(sent)
    calls = [asyncio.create_task(ask(pool, i, 120)) for i in range(8)]
    await asyncio.sleep(0.5)
    os.kill(pool.engines[0].pids()[1], signal.SIGKILL)
    replies = await asyncio.gather(*calls)
    assert {int(v) for reply in replies for v in reply.policy_versions} == {sent.version}
    assert all(len(reply) == 120 or reply.finish is Finish.STOP for reply in replies)
    async with asyncio.timeout(20):
        while pool.engines[0].state is EngineState.SERVING:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    await serving(pool)
    assert await pool.engines[0].control.checksum() == pool.current.checksum
    assert (await pool.engines[0].control.info())["weight_version"] == str(sent.version)


async def test_ids_outside_the_vocabulary_never_reach_a_server(pool):
    with pytest.raises(EngineError, match=r"token ids 600..600, expected 0..511"):
        await pool.client().generate(np.array([600], dtype=np.int32), Sampling(max_tokens=2), routing_key="k")


async def test_kill_9_of_the_owner_leaves_no_server(tiny_models, engine_python, tmp_path):
    owner = textwrap.dedent(
        f"""
        import asyncio
        from pathlib import Path
        from agar.rollout.engines import EnginePool, EnginesConfig
        async def main():
            config = EnginesConfig(router="none", python={engine_python!r})
            async with EnginePool(config, Path({str(tiny_models[0])!r}), run_dir=Path({str(tmp_path)!r})) as pool:
                print(*pool.pids(), flush=True)
                await asyncio.sleep(600)
        asyncio.run(main())
        """
    )
    process = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True
    )
    with process:
        pids = set(map(int, (await asyncio.to_thread(process.stdout.readline)).split()))
        assert len(pids) >= 4
        process.kill()
    async with asyncio.timeout(30):
        while pids & set(parents()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_gateway_streams_text_before_the_last_token_and_the_same_text(pool, update, tmp_path):
    """Greedy, so that both calls sample the same; the toy tokenizer has as many ids as the model."""
    await pool.receive(update(0))
    family = family_for(write_toy_model(tmp_path))
    early = []
    async with Gateway(engines={"main": pool.client()}, families={"main": family}) as gateway:
        for number in range(4):
            streamed, plain = (
                gateway.open(policy="main", sampling=Sampling(max_tokens=200, temperature=0.0)) for _ in range(2)
            )
            ask = {"model": "main", "messages": [{"role": "user", "content": f"Start at {number}."}]}
            async with openai.AsyncOpenAI(base_url=streamed.base_url, api_key=streamed.id, max_retries=0) as client:
                said = ""
                async for chunk in await client.chat.completions.create(**ask, stream=True):
                    text = chunk.choices[0].delta.content or ""
                    if text and not said:
                        early.append(streamed.replies == 0)
                    said += text
                whole = await client.with_options(api_key=plain.id).chat.completions.create(**ask)
            assert said == (whole.choices[0].message.content or "")
            records = [session.seal().nodes[0].sampled for session in (streamed, plain)]
            assert records[0].token_ids.tolist() == records[1].token_ids.tolist()
            assert records[0].logprobs.tolist() == pytest.approx(records[1].logprobs.tolist(), abs=5e-5)
            assert records[0].finish is records[1].finish
    assert any(early)
