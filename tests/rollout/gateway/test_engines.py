"""The whole way: OpenAI's client, gateway, engine client, HTTP, fake engine; then audit the record."""

import asyncio

import openai
import pytest

from agar.errors import SessionClosedError
from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.trace import Trace
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.server import Gateway
from agar.types import GroupId, Message, Outcome, Reward, Sampling, TaskRow

ASK = ModelCall(messages=(Message(role="user", content="Start."),), fingerprint=b"1")


@pytest.fixture
async def hanging(family):
    """A session whose only call hangs in its engine: the session, the call, the engine and its client."""
    async with (
        FakeEngine(vocab_size=family.tokenizer.vocabulary_size) as engine,
        RouterClient(engine.url) as client,
        Gateway(engines={"main": client}, families={"main": family}) as gateway,
    ):
        engine.fail("hang")
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=4))
        under_way = asyncio.create_task(session.call(ASK))
        while not engine.requests["/generate"]:  # noqa: ASYNC110 - its server counts
            await asyncio.sleep(0.005)
        yield session, under_way, engine, client


async def test_a_call_that_a_publish_has_just_cut_is_open_at_the_seal_and_ends_there(hanging):
    session, under_way, engine, client = hanging
    assert client.cut() == 1
    sealed = session.seal()
    assert (sealed.open_calls, sealed.nodes) == (1, ())
    with pytest.raises(SessionClosedError):
        await under_way
    assert (engine.requests["/generate"], client.counts["retried_attempt_timeout"]) == (1, 0)


async def test_a_repeated_call_joins_one_that_a_publish_has_just_cut(hanging):
    session, under_way, engine, client = hanging
    again = asyncio.create_task(session.call(ASK))  # its first step comes before that of the call that is cut
    assert client.cut() == 1
    assert await again is await under_way
    assert engine.requests["/generate"] == 2
    assert (len(session.seal().nodes), session.seal().repeats) == (1, 1)


async def test_concurrent_episodes_over_http_pass_the_audit(family):
    async with (
        FakeEngine(vocab_size=family.tokenizer.vocabulary_size, version=7) as engine,
        RouterClient(engine.url) as client,
        Gateway(engines={"main": client}, families={"main": family}) as gateway,
    ):

        async def play(number: int) -> Trace:
            session = gateway.open(policy="main", sampling=Sampling(max_tokens=12))
            messages = [{"role": "user", "content": f"Start at {number}."}]
            async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id) as agent:
                for _ in range(3):
                    reply = await agent.chat.completions.create(model="main", messages=messages)
                    messages += [reply.choices[0].message, {"role": "user", "content": "Go on."}]
            sealed = session.seal()
            return Trace(
                trajectory=str(number),
                group=GroupId(task="k", ordinal=0),
                role="agent",
                policy="main",
                task=TaskRow(key="k"),
                nodes=sealed.nodes,
                divergences=sealed.divergences,
                reward=Reward(total=0.0),
                outcome=Outcome.COMPLETED,
                open_calls=sealed.open_calls,
            )

        traces = await asyncio.gather(*(play(number) for number in range(8)))
    rows = [row for trace in traces for row in emit(trace)]
    report = audit(traces, rows)
    report.raise_if_broken()
    assert report.trained_tokens == report.sampled_tokens > 0
    assert len(rows) == len(traces)
    assert {int(v) for row in rows for v in row.policy_versions[row.loss_mask]} == {7}
