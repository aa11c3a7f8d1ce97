import asyncio

import anthropic
import httpx
import openai
import pytest

from agar.rollout.gateway.call import BusyError
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.in_flight import InFlight
from agar.rollout.gateway.server import Gateway
from agar.types import Sampling

ASK = {"role": "user", "content": "Start."}
BODIES = {
    "/v1/chat/completions": {"messages": [ASK]},
    "/v1/responses": {"input": "Start."},
    "/v1/messages": {"messages": [ASK], "max_tokens": 64},
}


def test_a_count_refuses_beyond_its_limit_and_beyond_the_one_around_it():
    around = InFlight("all", 3)
    one, two = InFlight("one", 2, around), InFlight("two", 2, around)
    one.enter(2)
    with pytest.raises(BusyError, match="2 of 2 calls of one"):
        one.enter(1)
    two.enter(1)
    with pytest.raises(BusyError, match="3 of 3 calls of all"):
        two.enter(1)
    assert (one.now, two.now, around.now) == (2, 1, 3)
    one.leave(2)
    two.enter(1)
    assert (one.refused, two.refused, around.refused, around.now) == (1, 1, 2, 2)


def serving(engine, family, **settings):
    return Gateway(engines={"main": engine}, families={"main": family}, config=GatewayConfig(**settings))


def opened(gateway):
    return gateway.open(policy="main", sampling=Sampling(max_tokens=64))


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("limit", ["calls_in_flight", "session_calls_in_flight"])
async def test_a_call_beyond_the_limit_is_told_to_come_again_in_its_dialect(stalling, family, limit):
    async with serving(stalling, family, **{limit: 1}) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        waiting = asyncio.create_task(
            http.post(f"{session.path_url}/chat/completions", json=BODIES["/v1/chat/completions"])
        )
        await stalling.asked.wait()
        for path, body in BODIES.items():
            for stream in (False, True):
                url = session.path_url.removesuffix("/v1") + path
                reply = await http.post(url, json=body | {"stream": stream, "user": "other"})
                assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
                kind = reply.json()["error"]["type"]
                assert kind == ("rate_limit_error" if path == "/v1/messages" else "requests")
        joined = asyncio.create_task(
            http.post(f"{session.path_url}/chat/completions", json=BODIES["/v1/chat/completions"])
        )
        await until(
            lambda: max(under_way.callers for under_way in session._open) == 2
        )  # a retry is no further generation
        stalling.go.set()
        assert {(await waiting).status_code, (await joined).status_code} == {200}
        again = await http.post(f"{session.path_url}/chat/completions", json={"messages": [ASK], "user": "other"})
        assert again.status_code == 200
        sealed = session.seal()
        assert gateway.metrics()["gateway/calls_in_flight_count"] == 0
    assert len(sealed.nodes) == 2
    assert sealed.refused == 6
    assert gateway.metrics()["gateway/refused_calls_count"] == 6


@pytest.mark.parametrize("limit", ["calls_in_flight", "session_calls_in_flight"])
async def test_a_count_of_tokens_takes_the_room_of_a_call_while_its_body_arrives_and_gives_it_back(
    engine, family, limit
):
    arriving, rest = asyncio.Event(), asyncio.Event()

    async def slow():
        yield b'{"messages": [{"role": "user", '
        arriving.set()
        await rest.wait()
        yield b'"content": "Start."}]}'

    async with serving(engine, family, **{limit: 1}) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        url, headers = f"{session.path_url}/messages/count_tokens", {"content-type": "application/json"}
        counting = asyncio.create_task(http.post(url, content=slow(), headers=headers))
        await arriving.wait()
        await until(lambda: gateway.metrics()["gateway/calls_in_flight_count"] == 1)
        for path, body in {**BODIES, "/v1/messages/count_tokens": {"messages": [ASK]}}.items():
            reply = await http.post(session.path_url.removesuffix("/v1") + path, json=body)
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
        rest.set()
        assert (await counting).json()["input_tokens"] > 0
        assert (await http.post(url, content=b"{", headers=headers)).status_code == 400
        assert (await http.post(url, json={"messages": [ASK]})).status_code == 200
        assert gateway.metrics()["gateway/calls_in_flight_count"] == 0


async def test_official_clients_come_again_and_get_their_reply(stalling, family):
    async with serving(stalling, family, calls_in_flight=1) as gateway:
        busy, session = opened(gateway), opened(gateway)
        first = asyncio.create_task(_ask(busy))
        await stalling.asked.wait()
        url = session.base_url
        async with (
            openai.AsyncOpenAI(base_url=url, api_key=session.id, max_retries=4) as ours,
            anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), auth_token=session.id, max_retries=4) as theirs,
        ):
            calls = [
                asyncio.create_task(ours.chat.completions.create(model="main", messages=[ASK])),
                asyncio.create_task(theirs.messages.create(model="main", max_tokens=64, messages=[ASK])),
            ]
            await until(lambda: gateway.metrics().get("gateway/refused_calls_count", 0) >= 2)
            stalling.go.set()
            await asyncio.gather(first, *calls)
        assert len(session.seal().nodes) == 2


async def _ask(session):
    async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id) as client:
        return await client.chat.completions.create(model="main", messages=[ASK])


@pytest.mark.parametrize("limit", ["calls_in_flight", "session_calls_in_flight"])
async def test_more_replies_than_may_ever_be_under_way_are_a_mistake_of_the_caller(family, engine, limit):
    async with serving(engine, family, **{limit: 2}) as gateway, httpx.AsyncClient() as http:
        url = f"{opened(gateway).path_url}/chat/completions"
        reply = await http.post(url, json={"messages": [ASK], "n": 3})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "n")
        assert len((await http.post(url, json={"messages": [ASK], "n": 2})).json()["choices"]) == 2
