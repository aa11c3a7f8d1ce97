"""Streams that are sent as the reply is sampled."""

import asyncio
import functools
import json
import socket
from dataclasses import replace

import anthropic
import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agar.errors import EngineError
from agar.ledger.toy import ToyEngine
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Sampling

ASK = {"role": "user", "content": "Start."}
PATHS = ("chat/completions", "responses", "messages")
TOOL = {"type": "object", "properties": {}}
BODIES = {
    "chat/completions": {
        "model": "main",
        "messages": [ASK],
        "tools": [{"type": "function", "function": {"name": "sh", "parameters": TOOL}}],
    },
    "responses": {
        "model": "main",
        "input": "Start.",
        "tools": [{"type": "function", "name": "sh", "parameters": TOOL, "strict": False}],
    },
    "messages": {
        "model": "main",
        "messages": [ASK],
        "max_tokens": 8,
        "tools": [{"name": "sh", "input_schema": TOOL}],
    },
}


class Telling(ToyEngine):
    """Tells of its reply in steps of some tokens; may wait, before its last step, to be let go, and may fail then."""

    def __init__(self, reply, *, step=1, holds=False, error=None):
        super().__init__(reply)
        self.step, self.holds, self.error = step, holds, error
        self.waits, self.go = asyncio.Event(), asyncio.Event()

    async def generate_telling(self, ids, sampling, *, images=(), routing_key, tell):
        whole = await self.generate(ids, sampling, routing_key=routing_key)
        tokens = whole.token_ids.tolist()
        for at in range(0, len(tokens), self.step):
            if self.holds and at + self.step >= len(tokens):
                await self._hold()
            tell(tokens[at : at + self.step])
            await asyncio.sleep(0)
        return whole

    async def _hold(self):
        self.waits.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error


def saying(family, text, **fields):
    """An engine that says marked text."""
    return Telling(lambda prompt: family.tokenizer.encode(text, special=True), **fields)


def serving(engine, family, **settings):
    return Gateway(engines={"main": engine}, families={"main": family}, config=GatewayConfig(**settings))


def opened(gateway, **fields):
    return gateway.open(policy="main", sampling=Sampling(max_tokens=256), **fields)


def events_of(text):
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def said_in(events):
    """The text of a stream's events, in any dialect."""
    said = ""
    for event in events:
        delta = event["choices"][0]["delta"] if event.get("choices") else event.get("delta")
        if isinstance(delta, dict):
            said += delta.get("content") or delta.get("text") or ""
        elif event.get("type") == "response.output_text.delta":
            said += delta
    return said


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def read_until(lines, said, condition):
    """More of a stream, until its events are as wanted."""
    async with asyncio.timeout(20):
        while not condition(events_of(said)):
            said += await anext(lines)
    return said


@pytest.mark.parametrize("path", PATHS)
async def test_text_is_sent_before_the_reply_is_whole(family, trained, path):
    engine = saying(family, "<think>hm</think>The answer is 29.<|im_end|>", holds=True)
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        url = f"{session.path_url}/{path}"
        async with http.stream("POST", url, json=BODIES[path] | {"stream": True}) as reply:
            lines = reply.aiter_text()
            text = await read_until(lines, "", lambda events: said_in(events).startswith("The"))
            await until(engine.waits.is_set)
            assert session.replies == 0
            engine.go.set()
            async for more in lines:
                text += more
        assert said_in(events_of(text)) == "The answer is 29."
        plain = await http.post(url, json=BODIES[path])
        assert plain.status_code == 200
        sealed = session.seal()
    assert (len(sealed.nodes), sealed.repeats) == (1, 1)
    assert len(trained(sealed)) == 1


CALL = '<tool_call>\n{"name":"sh","arguments":{"a":"é"}}\n</tool_call>'
PIECES = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", CALL, CALL, "<tool_call", "<|im_start|>"),
    *(" gold", "{", "STOP", "ST", "OP", "\n\n", " ", "é", "👍"),
)


@st.composite
def replies(draw, tokenizer):
    """Ids of a reply: marks, text that spells marks, and single bytes of characters."""
    ids = []
    for piece in draw(st.lists(st.sampled_from(PIECES), max_size=8)):
        how = draw(st.sampled_from(("marked", "marked", "plain", "bytes")))
        if how == "bytes":
            ids += [one for byte in piece.encode() for one in byte_ids(tokenizer, byte)]
        else:
            ids += tokenizer.encode(piece, special=how == "marked").tolist()
    return ids + tokenizer.encode("<|im_end|>", special=True).tolist() * draw(st.booleans())


@functools.cache
def byte_ids(tokenizer, byte):
    """The token of one byte alone."""
    return [i for i in range(tokenizer.vocabulary_size) if tokenizer.bytes_of(i) == bytes([byte])][:1]


class Official:
    """The official clients of one gateway, for any of its sessions."""

    def __init__(self, gateway):
        root = gateway.base_url.removesuffix("/v1")
        self.openai = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="?", max_retries=0)
        self.anthropic = anthropic.AsyncAnthropic(base_url=root, api_key="?", max_retries=0)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.openai.close()
        await self.anthropic.close()

    async def chat(self, session, body):
        client = self.openai.with_options(api_key=session.id).chat.completions
        async with client.stream(**body, stream_options={"include_usage": True}) as stream:
            streamed = await stream.get_final_completion()
        for choice in streamed.choices:
            for call in choice.message.tool_calls or ():
                del call.index  # of the deltas
        return streamed.model_dump(exclude_none=True), (await client.create(**body)).model_dump(exclude_none=True)

    async def responses(self, session, body):
        client = self.openai.with_options(api_key=session.id).responses
        async with client.stream(**body) as stream:
            streamed = await stream.get_final_response()
        plain = await client.create(**body)
        assert streamed.output_text == plain.output_text
        return streamed.model_dump(), plain.model_dump()

    async def messages(self, session, body):
        client = self.anthropic.with_options(api_key=session.id).messages
        async with client.stream(**body) as stream:
            streamed = await stream.get_final_message()
        plain = await client.create(**body)
        fields = {"exclude": {"parse_error"}}  # this client's accumulator keeps no field that it does not know
        return streamed.model_dump(**fields), plain.model_dump(**fields)


def cleaned(value):
    """Without what only the clients' own parsing helpers add."""
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    added = {"parsed", "parsed_arguments", "parsed_output"}
    return {name: cleaned(item) for name, item in value.items() if name not in added and item not in (None, [])}


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_accumulates_to_the_plain_reply(family, path):
    """Both by what the official clients make of them."""
    reply = []
    engine = Telling(lambda prompt: reply[-1])

    async def play(clients, gateway, ids, stop):
        reply.append(ids)
        body = BODIES[path]
        if stop and path != "responses":
            body = body | {"stop" if path != "messages" else "stop_sequences": ["STOP"]}
        session = opened(gateway)
        ask = {"chat/completions": clients.chat, "responses": clients.responses, "messages": clients.messages}[path]
        streamed, plain = await ask(session, body)
        sealed = session.seal()
        assert (len(sealed.nodes), sealed.repeats) == (1, 1)
        assert sealed.nodes[0].sampled.token_ids.tolist() == ids
        return cleaned(streamed), cleaned(plain)

    with asyncio.Runner() as runner:

        @settings(max_examples=25, deadline=None)
        @given(st.data())
        def same(data):
            engine.step = data.draw(st.integers(1, 3))
            ids = data.draw(replies(family.tokenizer))
            streamed, plain = runner.run(play(clients, gateway, ids, data.draw(st.booleans())))
            assert streamed == plain

        gateway = runner.run(serving(engine, family).__aenter__())
        clients = runner.run(Official(gateway).__aenter__())
        try:
            same()
        finally:
            runner.run(clients.__aexit__())
            runner.run(gateway.__aexit__())


@pytest.mark.parametrize("path", PATHS)
async def test_a_failure_behind_the_first_text_is_an_error_event_and_no_clean_end(family, path):
    engine = saying(family, "The answer is 29.<|im_end|>", holds=True, error=EngineError("gone"))
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        body = BODIES[path] | {"stream": True}
        async with http.stream("POST", f"{session.path_url}/{path}", json=body) as reply:
            lines = reply.aiter_text()
            await read_until(lines, "", said_in)
            engine.go.set()
            text = await read_until(lines, "", lambda events: any("error" in event for event in events))
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(lines)
    assert "gone" in text
    assert session.seal().nodes == ()


@pytest.mark.parametrize("path", PATHS)
async def test_a_caller_that_leaves_in_the_middle_of_the_text_ends_the_generation(family, path):
    def script(prompt, params):
        return family.tokenizer.encode("box 83 gold 29 " * 200, special=True).tolist()

    async with (
        FakeEngine(vocab_size=family.tokenizer.vocabulary_size, script=script, token_s=0.005) as engine,
        RouterClient(engine.url) as client,
        serving(client, family) as gateway,
        httpx.AsyncClient() as http,
    ):
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=2000))
        body = BODIES[path] | {"stream": True}
        async with http.stream("POST", f"{session.path_url}/{path}", json=body) as reply:
            await read_until(reply.aiter_text(), "", said_in)
            assert engine.running == 1
        await until(lambda: engine.running == 0)
        await until(lambda: gateway.metrics()["gateway/calls_in_flight_count"] == 0)
        assert session.seal().nodes == ()


@pytest.mark.parametrize(("budget", "streams", "left"), [({"max_turns": 2}, 2, 0), ({"max_tokens": 7}, 1, 1)])
@pytest.mark.parametrize("path", PATHS)
async def test_what_was_read_of_streams_that_were_left_is_spent(family, path, budget, streams, left):
    """Else a program may read every reply but for its last token, as often as it likes."""
    engine = saying(family, "box 83 gold 29 <|im_end|>", holds=True)
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway, **budget)
        for number in range(streams):
            body = BODIES[path] | {"stream": True, "temperature": number / 10}  # a call of its own
            async with http.stream("POST", f"{session.path_url}/{path}", json=body) as reply:
                await read_until(reply.aiter_text(), "", said_in)
                await engine.waits.wait()
            await until(lambda: gateway.metrics()["gateway/calls_in_flight_count"] == 0)
            engine.waits.clear()
        answered = await http.post(f"{session.path_url}/{path}", json=BODIES[path])
        assert answered.status_code == 200
        sealed = session.seal()
    assert sum(len(node.sampled) for node in sealed.nodes) == left  # the last token of each stream was not read


async def test_the_record_is_the_same_streamed_or_not(family):
    """Over HTTP and from a seeded engine; one session streams, the other does not."""
    async with (
        FakeEngine(vocab_size=family.tokenizer.vocabulary_size, version=3) as engine,
        RouterClient(engine.url) as client,
        serving(client, family) as gateway,
        httpx.AsyncClient() as http,
    ):
        records = []
        for stream in (True, False):
            session = gateway.open(policy="main", sampling=Sampling(max_tokens=40, seed=11))
            reply = await http.post(
                f"{session.path_url}/chat/completions", json=BODIES["chat/completions"] | {"stream": stream}
            )
            assert reply.status_code == 200
            (node,) = session.seal().nodes
            sampled = node.sampled
            rows = (sampled.token_ids, sampled.logprobs, sampled.policy_versions, node.delta)
            records.append(([row.tolist() for row in rows], node.turn, node.requested, node.sampling, sampled.finish))
    assert records[0] == records[1]


async def test_two_callers_follow_one_generation(family):
    engine = saying(family, "The answer is 29.<|im_end|>", holds=True)
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        url, body = f"{session.path_url}/responses", BODIES["responses"] | {"stream": True}
        async with http.stream("POST", url, json=body) as first:
            begun = first.aiter_text()
            one = await read_until(begun, "", said_in)
            async with http.stream("POST", url, json=body) as second:
                late = second.aiter_text()
                other = await read_until(late, "", said_in)
                assert said_in(events_of(other)).startswith(said_in(events_of(one)))
                engine.go.set()
                other += "".join([more async for more in late])
            one += "".join([more async for more in begun])
        sealed = session.seal()
    assert events_of(one)[-1]["response"] == events_of(other)[-1]["response"]
    assert said_in(events_of(one)) == said_in(events_of(other)) == "The answer is 29."
    assert (len(sealed.nodes), sealed.repeats, len(engine.prompts)) == (1, 1, 1)


@pytest.mark.parametrize("path", PATHS)
async def test_a_wall_clock_ends_a_stream_with_what_was_sent(family, path):
    engine = saying(family, "The answer is 29.<|im_end|>", holds=True)
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway, wall_s=1.0)
        reply = await http.post(f"{session.path_url}/{path}", json=BODIES[path] | {"stream": True})
        assert said_in(events_of(reply.text)).startswith("The answer")
        assert {"length", "max_tokens", "max_output_tokens"} & set(reply.text.replace('"', " ").split())
        sealed = session.seal()
    assert (sealed.nodes, sum(sealed.budget_stops.values())) == ((), 1)


async def test_several_replies_and_families_that_read_whole_replies_come_as_a_whole(family, monkeypatch):
    engine = saying(family, "gold<|im_end|>")
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        url, body = f"{session.path_url}/chat/completions", BODIES["chat/completions"] | {"stream": True}
        several = events_of((await http.post(url, json=body | {"n": 2})).text)
        assert {choice["index"] for event in several for choice in event["choices"]} == {0, 1}
        monkeypatch.setattr(family, "grow", lambda *rest, **fields: None)
        whole = events_of((await http.post(url, json=body)).text)
        assert [event["choices"][0]["delta"].get("content") for event in whole] == ["", "gold", None]


async def test_a_reply_that_does_not_go_on_from_what_was_sent_is_an_error(family, monkeypatch):
    engine = saying(family, "The answer is 29.<|im_end|>")
    parse = family.parse
    monkeypatch.setattr(family, "parse", lambda *rest, **fields: replace(parse(*rest, **fields), text="Another."))
    async with serving(engine, family) as gateway:
        session = opened(gateway)
        async with openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=0) as client:
            stream = await client.chat.completions.create(model="main", messages=[ASK], stream=True)
            with pytest.raises(openai.APIError, match="does not begin with what was streamed"):
                async for _ in stream:
                    pass
    assert len(session.seal().nodes) == 1


async def test_a_reader_that_reads_nothing_is_cut_off_and_stalls_nobody(family):
    """Its reply is longer than the socket holds, and not at its end: the call ends as if the client had left."""
    ids = family.tokenizer.encode("box 83 gold 29 " * 30_000).tolist()
    engine = Telling(lambda prompt: ids, step=64, holds=True)
    async with serving(engine, family, write_timeout_s=0.2) as gateway, httpx.AsyncClient() as http:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=len(ids)))
        body = json.dumps(BODIES["chat/completions"] | {"stream": True}).encode()
        head = f"POST /s/{session.id}/v1/chat/completions HTTP/1.1\r\nhost: g\r\ncontent-length: {len(body)}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as reader:
            reader.connect(str(gateway.socket_path))
            reader.sendall(head.encode() + body)
            await until(lambda: engine.prompts)
            assert (await http.get(f"{session.path_url}/models")).status_code == 200
            await until(lambda: gateway.metrics().get("gateway/unread_replies_count") == 1)
            await until(lambda: gateway.metrics()["gateway/calls_in_flight_count"] == 0)
        assert session.seal().nodes == ()


async def test_a_reader_that_is_slow_gets_what_it_missed_at_once(family):
    """While it does not read, nothing is kept for it but the reply itself."""
    ids = family.tokenizer.encode("box 83 gold 29 " * 30_000).tolist()
    engine = Telling(lambda prompt: ids, step=64)
    async with serving(engine, family) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=len(ids)))
        way = httpx.AsyncHTTPTransport(uds=str(gateway.socket_path))
        body = BODIES["chat/completions"] | {"stream": True}
        async with (
            httpx.AsyncClient(transport=way, timeout=30) as http,
            http.stream("POST", f"{session.path_url}/chat/completions", json=body) as reply,
        ):
            await until(lambda: session.replies == 1)  # the engine did not wait for the reader
            text = (await reply.aread()).decode()
    events = events_of(text)
    assert said_in(events) == "box 83 gold 29 " * 30_000
    assert len(events) < len(ids) // 64 // 2
