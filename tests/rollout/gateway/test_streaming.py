import asyncio
import json

import httpx
import openai
import pytest

from agar.errors import DeadlineError, EngineError
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling, ToolCall

TOOLS = [
    {
        "type": "function",
        "function": {"name": "sh", "description": "Run.", "parameters": {"type": "object", "properties": {}}},
    }
]
ASK = {"role": "user", "content": "Start."}


def serving(engine, family, **settings):
    return Gateway(engines={"main": engine}, families={"main": family}, config=GatewayConfig(**settings))


def opened(gateway, **fields):
    return gateway.open(policy="main", sampling=Sampling(max_tokens=64), **fields)


def chunks_of(text: str) -> list[dict]:
    """Events of a stream as any reader of the standard sees them; comments are left out."""
    events = [line for line in text.split("\n\n") if line and not line.startswith(":")]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


async def test_openai_client_streams_two_turns_with_a_tool(client, session, trained):
    async with client.chat.completions.stream(model="main", messages=[ASK], tools=TOOLS) as stream:
        reply = await stream.get_final_completion()
    choice = reply.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Look.")
    call = choice.message.tool_calls[0]
    assert (call.id, call.function.name) == ("call_0_0", "sh")
    assert json.loads(call.function.arguments) == {"command": "cat 47"}
    message = choice.message.model_dump(include={"role", "content", "tool_calls"})
    message["tool_calls"] = [
        c | {"function": {k: c["function"][k] for k in ("name", "arguments")}} for c in message["tool_calls"]
    ]
    history = [ASK, message, {"role": "tool", "tool_call_id": call.id, "content": "box 83"}]
    text, finishes = "", []
    async for chunk in await client.chat.completions.create(model="main", messages=history, tools=TOOLS, stream=True):
        text += chunk.choices[0].delta.content or ""
        finishes.append(chunk.choices[0].finish_reason)
    assert text == "gold"
    assert [finish for finish in finishes if finish] == ["stop"]
    assert finishes[-1] == "stop"
    sealed = session.seal()
    assert [(node.parent, dict(node.requested)) for node in sealed.nodes] == [(None, {}), (0, {})]
    assert sealed.divergences == ()
    assert len(trained(sealed)) == 1


async def test_the_usage_comes_last_where_it_is_asked_for(client, engine):
    stream = await client.chat.completions.create(
        model="main", messages=[ASK], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert (chunks[-1].choices, chunks[-1].usage.prompt_tokens) == ([], len(engine.prompts[0]))
    assert chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-2].choices[0].finish_reason == "tool_calls"


async def test_a_stream_is_events_and_gives_what_the_plain_reply_gives(gateway, scripted, family):
    """Reasoning, text and two calls; the plain request after the stream is the same call, so one node."""
    calls = tuple(ToolCall(id="", name="sh", arguments={"command": f"cat {n}"}) for n in (1, 2))
    engine = scripted(Message(role="assistant", content="Both.", reasoning="Two boxes.", tool_calls=calls))
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        url = f"{session.path_url}/chat/completions"
        body = {"messages": [ASK], "tools": TOOLS}
        reply = await http.post(url, json=body | {"stream": True})
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert "content-length" not in reply.headers
        chunks = chunks_of(reply.text)
        plain = (await http.post(url, json=body)).json()
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {(chunk["id"], chunk["model"]) for chunk in chunks} == {(plain["id"], "main")}
    assert all("usage" not in chunk for chunk in chunks)
    merged: dict = {}
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        for name in ("role", "content", "reasoning_content"):
            if delta.get(name) is not None:
                merged[name] = merged.get(name, "") + delta[name]
        for piece in delta.get("tool_calls", ()):
            call = merged.setdefault("tool_calls", {}).setdefault(piece["index"], {"function": {"arguments": ""}})
            call.update({k: piece[k] for k in ("id", "type") if k in piece})
            call["function"]["arguments"] += piece["function"]["arguments"]
            call["function"]["name"] = piece["function"].get("name", call["function"].get("name"))
    merged["tool_calls"] = [merged["tool_calls"][i] for i in sorted(merged["tool_calls"])]
    assert merged == plain["choices"][0]["message"]
    assert chunks[-1]["choices"][0]["finish_reason"] == plain["choices"][0]["finish_reason"] == "tool_calls"
    sealed = session.seal()
    assert (len(sealed.nodes), sealed.repeats) == (1, 1)


async def test_a_waiting_stream_is_kept_alive_with_comments(stalling, family):
    async with serving(stalling, family, ping_s=0.01) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        body = {"messages": [ASK], "stream": True}
        async with http.stream("POST", f"{session.path_url}/chat/completions", json=body) as reply:
            text, lines = "", reply.aiter_text()
            while text.count(": ") < 2:
                text += await anext(lines)
            assert chunks_of(text + "data: [DONE]\n\n") == []
            stalling.go.set()
            async for more in lines:
                text += more
    assert chunks_of(text)[-1]["choices"][0]["finish_reason"] == "tool_calls"


class Failing:
    """Fails when it is let go."""

    def __init__(self, error):
        self.error, self.go = error, asyncio.Event()

    async def generate(self, ids, sampling, *, routing_key):
        await self.go.wait()
        raise self.error


@pytest.mark.parametrize(("error", "status"), [(EngineError("gone"), 502), (DeadlineError("late"), 504)])
async def test_a_failure_before_the_first_byte_is_an_ordinary_error(family, error, status):
    engine = Failing(error)
    engine.go.set()
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        reply = await http.post(f"{session.path_url}/chat/completions", json={"messages": [ASK], "stream": True})
        assert reply.status_code == status
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["error"]["type"] == "server_error"
        bad = await http.post(f"{session.path_url}/chat/completions", json={"messages": [], "stream": True})
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "messages")
    assert session.seal().nodes == ()


async def test_a_failure_after_the_first_byte_is_an_error_event_and_no_clean_end(family):
    engine = Failing(EngineError("gone"))
    async with serving(engine, family, ping_s=0.01) as gateway:
        session = opened(gateway)
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
            stream = await client.chat.completions.create(model="main", messages=[ASK], stream=True)
            engine.go.set()
            with pytest.raises(openai.APIError, match="gone"):
                async for _ in stream:
                    pass
        engine.go.clear()
        text = ""
        async with httpx.AsyncClient() as http:
            body = {"messages": [ASK], "stream": True}
            async with http.stream("POST", f"{session.path_url}/chat/completions", json=body) as reply:
                engine.go.set()
                lines = reply.aiter_text()
                while "engine_error" not in text:
                    text += await anext(lines)
                with pytest.raises(httpx.RemoteProtocolError):  # no clean end: nobody takes it for an answer
                    await anext(lines)
        assert "[DONE]" not in text


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("ping_s", [0.01, 10.0])
async def test_a_caller_that_leaves_ends_the_generation_and_may_ask_again(stalling, family, trained, ping_s):
    async with serving(stalling, family, ping_s=ping_s) as gateway:
        session = opened(gateway)
        url = f"{session.path_url}/chat/completions"
        body = {"messages": [ASK], "stream": True}
        async with httpx.AsyncClient() as http:
            leaving = asyncio.create_task(http.post(url, json=body))
            await stalling.asked.wait()
            await asyncio.sleep(0.03)
            leaving.cancel()
            await asyncio.wait({leaving})
        await until(lambda: stalling.given_up == 1)
        stalling.go.set()
        async with httpx.AsyncClient() as http:
            assert chunks_of((await http.post(url, json=body)).text)
        sealed = session.seal()
    assert (len(sealed.nodes), sealed.open_calls, stalling.calls) == (1, 0, 2)
    assert len(trained(sealed)) == 1


async def test_a_generation_goes_on_while_another_caller_waits_for_it(stalling, family):
    async with serving(stalling, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        url = f"{session.path_url}/chat/completions"
        body = {"messages": [ASK], "stream": True}
        async with httpx.AsyncClient() as other:
            leaving = asyncio.create_task(other.post(url, json=body))
            await stalling.asked.wait()
            staying = asyncio.create_task(http.post(url, json={"messages": [ASK]}))
            await until(lambda: max(under_way.callers for under_way in session._open) == 2)
            leaving.cancel()
            await asyncio.wait({leaving})
        await until(lambda: max(under_way.callers for under_way in session._open) == 1)
        stalling.go.set()
        assert (await staying).status_code == 200
    assert (stalling.calls, stalling.given_up) == (1, 0)


async def test_sealing_ends_a_waiting_stream_without_a_clean_end(stalling, family):
    async with serving(stalling, family, ping_s=0.01) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        body = {"messages": [ASK], "stream": True}
        async with http.stream("POST", f"{session.path_url}/chat/completions", json=body) as reply:
            assert session.seal().open_calls == 1
            with pytest.raises(httpx.RemoteProtocolError):
                await reply.aread()


async def test_a_budget_ends_a_stream_with_length(gateway):
    session = opened(gateway, max_turns=1)
    async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id) as client:
        for last in ("tool_calls", "length"):
            stream = await client.chat.completions.create(
                model="main", messages=[ASK], stream=True, seed=len(last), stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert chunks[-2].choices[0].finish_reason == last
    assert chunks[-1].usage.completion_tokens == 0
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == ""


async def test_options_of_a_stream_that_have_no_effect_are_kept_in_the_record(gateway):
    session = opened(gateway)
    async with httpx.AsyncClient() as http:
        body = {
            "messages": [ASK],
            "stream": True,
            "stream_options": {"include_usage": False, "include_obfuscation": False},
        }
        assert (await http.post(f"{session.path_url}/chat/completions", json=body)).status_code == 200
    assert session.seal().nodes[0].requested == {"stream_options": {"include_obfuscation": False}}
