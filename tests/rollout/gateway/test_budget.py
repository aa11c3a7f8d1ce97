import asyncio
import math

import anthropic
import openai
import pytest

from agar.errors import ConfigError
from agar.rollout.gateway import budget as budget_module
from agar.rollout.gateway.budget import Account, Budget, Limits
from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Finish, Message, Sampling

ASK = {"role": "user", "content": "Start."}


def test_an_account_without_a_clock_has_all_the_time():
    account = Account(Limits(), 8, stop_when_cut=False)
    assert (account.left_s(), account.spent()) == (math.inf, None)


def test_tokens_left_are_shared_by_the_replies_to_a_call():
    account = Account(Limits(tokens=10, context_tokens=20), 8, stop_when_cut=False)
    assert [account.room(5, replies) for replies in (1, 2, 3, 11)] == [8, 5, 3, 0]
    assert account.room(18) == 2


def test_a_wall_clock_ends_a_session_when_it_has_run_out(monkeypatch):
    now = 100.0
    monkeypatch.setattr(budget_module.time, "monotonic", lambda: now)
    account = Account(Limits(wall_s=5.0), 8, stop_when_cut=False)
    assert (account.left_s(), account.spent()) == (5.0, None)
    now = 105.0
    assert account.spent() is Budget.WALL_CLOCK


async def test_a_wall_clock_cuts_the_call_under_way(stalling, family):
    async with Gateway(engines={"main": stalling}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=64), wall_s=0.2)
        reply = await session.call(ModelCall(messages=(Message(role="user", content="Start."),), n=2))
        sealed = session.seal()
    assert (reply.budget, len(reply.choices), reply.turn.finish) == (Budget.WALL_CLOCK, 2, Finish.LENGTH)
    assert (stalling.calls, stalling.given_up) == (2, 2)
    assert (sealed.nodes, sealed.open_calls, sealed.budget_stops) == ((), 0, {Budget.WALL_CLOCK: 1})


async def test_a_wall_clock_that_has_run_out_stops_every_dialect_well_formed(stalling, family):
    async with Gateway(engines={"main": stalling}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=64), wall_s=0.001)
        await asyncio.sleep(0.002)
        url = session.base_url
        async with (
            openai.AsyncOpenAI(base_url=url, api_key=session.id, max_retries=0) as ours,
            anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), auth_token=session.id, max_retries=0) as theirs,
        ):
            chats = [
                await ours.chat.completions.create(model="main", messages=[ASK]),
                await _last(await ours.chat.completions.create(model="main", messages=[ASK], stream=True)),
            ]
            response = await ours.responses.create(model="main", input="Start.")
            async with ours.responses.stream(model="main", input="Start.") as stream:
                streamed = (await _last(stream)).response  # the client's own helper knows complete ones only
            message = await theirs.messages.create(model="main", max_tokens=64, messages=[ASK])
            async with theirs.messages.stream(model="main", max_tokens=64, messages=[ASK]) as stream:
                last = await stream.get_final_message()
        sealed = session.seal()
    assert [made.choices[0].finish_reason for made in chats] == ["length"] * 2
    assert [r.incomplete_details.reason for r in (response, streamed)] == ["max_output_tokens"] * 2
    assert [m.stop_reason for m in (message, last)] == ["max_tokens"] * 2
    assert (stalling.calls, sealed.nodes, sealed.budget_stops) == (0, (), {Budget.WALL_CLOCK: 6})


async def _last(stream):
    return [chunk async for chunk in stream][-1]


async def test_an_engine_that_is_silent_for_longer_than_a_call_may_wait_is_no_budget(stalling, family):
    config = GatewayConfig(call_timeout_s=0.05)
    async with Gateway(engines={"main": stalling}, families={"main": family}, config=config) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(), wall_s=60.0)
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
            with pytest.raises(openai.InternalServerError, match="no reply of policy"):
                await client.chat.completions.create(model="main", messages=[ASK])
        with pytest.raises(ConfigError, match="wall_s"):
            gateway.open(policy="main", sampling=Sampling(), wall_s=0)


async def test_an_abandoned_session_is_closed_and_counted(stalling, family):
    async with Gateway(engines={"main": stalling}, families={"main": family}) as gateway:
        session, other = (gateway.open(policy="main", sampling=Sampling()) for _ in range(2))
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
            call = asyncio.create_task(client.chat.completions.create(model="main", messages=[ASK]))
            await stalling.asked.wait()
            session.abandon()
            with pytest.raises(openai.AuthenticationError):
                await call
            with pytest.raises(openai.AuthenticationError):
                await client.chat.completions.create(model="main", messages=[ASK])
        other.seal()
        other.abandon()  # too late: its record was given out
        assert (session.abandoned, other.abandoned, gateway.open_sessions, stalling.given_up) == (True, False, 0, 1)
        metrics = gateway.metrics()
    assert (metrics["gateway/sessions_abandoned_count"], metrics["gateway/sessions_sealed_count"]) == (1, 1)
