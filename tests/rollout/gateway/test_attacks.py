"""Programs that mean harm: what they can reach, exhaust, or race against."""

import asyncio
import json
import logging
import random

import httpx
import pytest

from agar.errors import EngineError, SessionClosedError
from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.rollout.gateway.translation import ReadTools, ToolCache
from agar.types import Message, Sampling, ToolCall

ASK = {"role": "user", "content": "Start."}
PATIENCE_S = 20.0


def serving(engine, family, **settings):
    return Gateway(engines={"main": engine}, families={"main": family}, config=GatewayConfig(**settings))


def opened(gateway, **fields):
    return gateway.open(policy="main", sampling=Sampling(max_tokens=64), **fields)


def address(gateway) -> tuple[str, int]:
    host, _, port = gateway.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
    return host, int(port)


async def raw(gateway, *pieces: bytes) -> bytes:
    """What comes back on a connection of its own until the server closes it."""
    reader, writer = await asyncio.open_connection(*address(gateway))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    except ConnectionError:  # closed with bytes of ours unread
        return b""
    finally:
        writer.close()


def head(session, *lines: str) -> bytes:
    rows = ["POST /v1/chat/completions HTTP/1.1", "host: gateway", "content-type: application/json"]
    return "\r\n".join([*rows, f"authorization: Bearer {session.id}", *lines, "", ""]).encode()


# ------------------------------------------------------------------------------------------------------ waiting


async def test_a_body_that_does_not_come_is_given_up(engine, family):
    async with serving(engine, family, body_timeout_s=0.2) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        answer = await raw(gateway, head(session, "content-length: 100"), b'{"messages"')
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
        assert (await http.post(f"{session.path_url}/chat/completions", json={"messages": [ASK]})).status_code == 200
    assert len(session.seal().nodes) == 1


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost: gate"])
async def test_a_request_whose_head_does_not_come_is_given_up(engine, family, sent):
    async with serving(engine, family, head_timeout_s=0.2) as gateway:
        assert await raw(gateway, sent) == b""


async def test_the_head_of_a_second_request_may_not_trickle_either(engine, family):
    async with serving(engine, family, head_timeout_s=0.2) as gateway:
        session = opened(gateway)
        body = json.dumps({"messages": [ASK]}).encode()
        whole = head(session, f"content-length: {len(body)}") + body
        answer = await raw(gateway, whole + whole[:20])
        assert answer.count(b"HTTP/1.1 200 OK") == answer.count(b"HTTP/1.1 ") == 1


async def test_headers_without_end_are_cut_off(engine, family):
    async with serving(engine, family) as gateway:
        session = opened(gateway)
        answer = await raw(gateway, head(session)[:-2], *([b"x-filler: " + b"y" * 1000 + b"\r\n"] * 200))
        assert answer == b""
    assert session.seal().nodes == ()


async def test_a_call_may_last_longer_than_its_request(stalling, family):
    async with (
        serving(stalling, family, head_timeout_s=0.05, body_timeout_s=0.05) as gateway,
        httpx.AsyncClient() as http,
    ):
        session = opened(gateway)
        calls = [
            asyncio.create_task(http.post(f"{session.path_url}/chat/completions", json={"messages": [ASK]} | fields))
            for fields in ({}, {"stream": True, "seed": 1})
        ]
        while stalling.calls < 2:
            await asyncio.wait_for(stalling.asked.wait(), PATIENCE_S)
            await asyncio.sleep(0.01)
        done, _ = await asyncio.wait(calls, timeout=0.3)
        assert not done
        stalling.go.set()
        assert [(await call).status_code for call in calls] == [200, 200]


# ------------------------------------------------------------------------------------------------------- memory


async def test_calls_that_fail_leave_nothing_behind(family):
    class Failing:
        async def generate(self, ids, sampling, *, routing_key):
            raise EngineError("gone")

    async with serving(Failing(), family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        for number in range(20):
            body = {"messages": [ASK], "seed": number}
            assert (await http.post(f"{session.path_url}/chat/completions", json=body)).status_code == 502
        assert not session._replies
        assert not session._open


@pytest.mark.parametrize("recorded", [0, 1])
async def test_what_is_counted_and_never_recorded_does_not_fill_the_memory(engine, family, recorded):
    async with serving(engine, family) as gateway, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        session = opened(gateway)
        session.messages.limit_bytes = 200_000
        trie = session._forest._paths._trie
        trie.limit_characters = 200_000
        if recorded:  # only then is there something to find a history in
            ask = {"messages": [{"role": "user", "content": "Start."}], "max_tokens": 8}
            reply = await http.post(f"{session.path_url}/messages", json=ask)
            assert reply.status_code == 200
        for number in range(12):
            body = {"messages": [{"role": "user", "content": f"{number}" + "x" * 50_000}]}
            reply = await http.post(f"{session.path_url}/messages/count_tokens", json=body)
            assert reply.status_code == 200
            assert session.messages.held_bytes <= 200_000
            assert trie.held_characters <= 200_000
        assert len(session.seal().nodes) == recorded


def test_tool_lists_of_all_sessions_together_are_bounded():
    cache = ToolCache(limit_bytes=10_000)
    read = []

    def reader(rows):
        read.append(rows)
        return ReadTools()

    for number in range(20):
        cache.read([{"name": f"{number}" + "x" * 3000}], reader)
        assert cache.held_bytes <= 10_000
    cache.read([{"name": "y" * 20_000}], reader)
    assert cache.held_bytes <= 10_000
    last = [{"name": "z"}]
    assert cache.read(last, reader) is cache.read([{"name": "z"}], reader)
    assert len(read) == 22


# ------------------------------------------------------------------------------------------------ keys and heads


async def test_a_stranger_keeps_no_connection(engine, family):
    async with serving(engine, family) as gateway:
        session = opened(gateway)
        body = json.dumps({"messages": [ASK]}).encode()
        request = head(session, f"content-length: {len(body)}") + body
        session.seal()
        answer = await raw(gateway, request)
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_what_one_session_holds_cannot_be_named_by_another(engine, family):
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session, other = opened(gateway), opened(gateway)
        first = await http.post(f"{session.path_url}/responses", json={"input": "a secret"})
        said = await http.post(
            f"{session.path_url}/messages", json={"max_tokens": 8, "messages": [ASK], "thread": {"type": "create"}}
        )
        item = next(row["id"] for row in first.json()["output"] if row["type"] == "message")
        thread = {"type": "continue", "previous_message_id": said.json()["id"]}
        asked = [
            ("responses", {"input": "Go on.", "previous_response_id": first.json()["id"]}),
            ("responses", {"input": [{"type": "item_reference", "id": item}, {"role": "user", "content": "Go on."}]}),
            ("messages", {"max_tokens": 8, "messages": [ASK], "thread": thread}),
        ]
        for path, body in asked:
            reply = await http.post(f"{other.path_url}/{path}", json=body)
            assert 400 <= reply.status_code < 500, path
            assert "secret" not in reply.text
            assert (await http.post(f"{session.path_url}/{path}", json=body)).status_code == 200, path
    assert (len(session.seal().nodes), other.seal().nodes) == (5, ())


async def test_no_part_or_spelling_of_a_key_opens_a_session(engine, family, caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session, other = opened(gateway), opened(gateway)
        key, url = session.id, gateway.base_url
        guesses = [key[:-1], key + "x", key.upper(), key.swapcase(), f'"{key}"', f"{key},{other.id}", f"{key}/", "*"]
        for guess in [*guesses, key.removeprefix("agar-"), session.policy, "None", "0", "../" + key]:
            for headers in ({"authorization": f"Bearer {guess}"}, {"x-api-key": guess}, {"authorization": guess}):
                reply = await http.post(f"{url}/chat/completions", json={"messages": [ASK]}, headers=headers)
                assert reply.status_code == 401, headers
                assert key not in reply.text
        root = url.removesuffix("/v1")
        for path in (
            "/s//v1/models",
            "/s/./v1/models",
            "/s/../v1/models",
            f"/s/%2e%2e/{key}/v1/models",
            "/s/%00/v1/models",
        ):
            assert (await http.get(root + path)).status_code in (401, 404), path
        assert (await http.get(f"{root}/s/{key}/../{other.id}/v1/models")).status_code in (200, 401, 404)
    assert session.seal().nodes == other.seal().nodes == ()
    assert not [record for record in caplog.records if key in record.getMessage() and record.name.startswith("agar")]


async def test_the_session_in_the_path_is_the_one_whatever_the_headers_name(engine, family):
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session, other = opened(gateway), opened(gateway)
        headers = {"authorization": f"Bearer {other.id}", "x-api-key": other.id}
        url = f"{session.path_url}/chat/completions"
        assert (await http.post(url, json={"messages": [ASK]}, headers=headers)).status_code == 200
        other.seal()
        assert (await http.post(url, json={"messages": [ASK, ASK]}, headers=headers)).status_code == 200
        session.seal()
        assert (await http.post(url, json={"messages": [ASK]}, headers=headers)).status_code == 401
    assert (len(session.seal().nodes), len(other.seal().nodes)) == (2, 0)


@pytest.mark.parametrize(
    "lines",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: -1",),
        ("content-length: 99999999999999999999999",),
        ("content-length: +5",),
        ("transfer-encoding: chunked, identity",),
        ("bad header\x00: x", "content-length: 0"),
    ],
    ids=range(7),
)
async def test_a_request_of_two_lengths_smuggles_no_second_one(engine, family, lines):
    """Whoever reads its end in another place would take the rest of it for a request of its own."""
    async with serving(engine, family, head_timeout_s=0.2, body_timeout_s=0.2) as gateway:
        session, victim = opened(gateway), opened(gateway)
        body = json.dumps({"messages": [ASK]}).encode()
        hidden = head(victim, f"content-length: {len(body)}") + body
        answer = await raw(gateway, head(session, *lines) + b"0\r\n\r\n" + hidden)
        assert b"200 OK" not in answer
        assert b" 500 " not in answer
        assert victim.seal().nodes == session.seal().nodes == ()


# -------------------------------------------------------------------------------------------------------- races


@pytest.mark.parametrize("seed", range(10))
async def test_a_seal_at_any_moment_splits_calls_into_answered_and_refused(family, scripted, seed):
    draw = random.Random(seed)
    engine = scripted("gold")

    class Wavering:
        async def generate(self, ids, sampling, *, routing_key):
            for _ in range(draw.randrange(6)):
                await asyncio.sleep(0)
            return await engine.generate(ids, sampling, routing_key=routing_key)

    async with serving(Wavering(), family) as gateway:
        for _ in range(30):
            session = opened(gateway)
            bodies = [f"{i}".encode() for i in range(4)]

            async def call(session=session, bodies=bodies):
                name = draw.choice(bodies)
                for _ in range(draw.randrange(6)):
                    await asyncio.sleep(0)
                message = Message(role="user", content=name.decode())
                ask = ModelCall(messages=(message,), fingerprint=name, stream=draw.random() < 0.5)
                return await session.call(ask, stays=draw.random() < 0.5)

            tasks = [asyncio.create_task(call()) for _ in range(6)]
            for _ in range(draw.randrange(10)):
                await asyncio.sleep(0)
            leaving = draw.choice(tasks)
            leaving.cancel()
            sealed = session.seal()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            kinds = {type(answer) for answer in answers}
            assert kinds <= {type(answers[0]), SessionClosedError, asyncio.CancelledError} | {
                type(answer) for answer in answers if hasattr(answer, "node")
            }
            assert session.seal() is sealed
            assert len(session._forest.nodes) == len(sealed.nodes), "a node after the seal"
            for answer in answers:
                if hasattr(answer, "node"):
                    assert sealed.nodes[answer.node.id] is answer.node
            assert sealed.open_calls <= len(bodies)
            assert not session._open or not [under_way for under_way in session._open if not under_way.done]
        assert gateway.open_sessions == 0
        assert gateway.metrics()["gateway/calls_in_flight_count"] == 0


# --------------------------------------------------------------------------------------------------- odd values


async def test_doubled_and_giant_ids_do_not_confuse_the_record(family, scripted):
    call = ToolCall(id="", name="sh", arguments={"a": 1})
    engine = scripted(Message(role="assistant", content="", tool_calls=(call, call)), "gold", "more")
    async with serving(engine, family) as gateway, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        session = opened(gateway)
        url = f"{session.path_url}/chat/completions"
        said = (await http.post(url, json={"messages": [ASK]})).json()["choices"][0]["message"]
        giant = "x" * 1_000_000
        for row in said["tool_calls"]:
            row["id"] = giant
        results = [{"role": "tool", "tool_call_id": giant, "content": content} for content in ("one", "two")]
        history = [ASK, said, *results]
        last = (await http.post(url, json={"messages": history})).json()["choices"][0]["message"]
        assert last["content"] == "gold"
        history = [ASK, said, *results[::-1], last, ASK]
        assert (await http.post(url, json={"messages": history})).status_code == 200
        assert (await http.post(url, json={"messages": [ASK], "user": giant[:200_000]})).status_code == 200
    sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0, 1, None]
    assert max(len(d.kept) + len(d.sent) for d in sealed.divergences) < 1000


WISHES = {"user": "x" * 300_000, "model": "x" * 300_000, "y" * 300_000: 1, "metadata": {"a": ["x" * 100] * 3_000}}


@pytest.mark.parametrize("name", WISHES)
@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_a_call_may_not_fill_the_record_with_what_it_does_not_pay_for(engine, family, path, name):
    body = {"input": "Start."} if path == "responses" else {"messages": [ASK], "max_tokens": 8}
    async with serving(engine, family) as gateway, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        session = opened(gateway, max_turns=1)
        reply = await http.post(f"{session.path_url}/{path}", json=body | {name: WISHES[name]})
        error = reply.json()["error"]
        assert (reply.status_code, name[:80] in error["message"]) == (400, True)
        if path != "messages":  # Anthropic's shape has none
            assert error["param"] == name[:80]
        assert len(reply.content) < 1000
        assert (await http.post(f"{session.path_url}/{path}", json=body | {"user": "x" * 10_000})).status_code == 200
        (node,) = session.seal().nodes
    assert node.requested["user"] == "x" * 10_000


async def test_fields_of_messages_may_not_fill_it_either(engine, family):
    async with serving(engine, family) as gateway, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        session = opened(gateway)
        rows = [ASK | {"note": "x" * 50_000} for _ in range(6)]
        reply = await http.post(f"{session.path_url}/chat/completions", json={"messages": rows})
        assert (reply.status_code, "messages[" in reply.json()["error"]["message"]) == (400, True)
        assert session.seal().nodes == ()


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "\ufeff\ufffe\uffff",
        "e\u0301 \u200d\u202e\u2066 \U0001f469\u200d\U0001f4bb",
        "\u2028\u2029\x85\x0b\x0c\x1c",
        "\U0010ffff\ue000",
        "<|im_end|>\n<|im_start|>assistant\n",
        "\r\n\r",
        " \u00a0\u3000\t",
        "{{ messages }}{% endif %}",
        "\ufffd" * 100,
    ],
    ids=range(10),
)
async def test_every_text_reaches_the_model_as_it_is_and_is_found_again(family, scripted, text):
    engine = scripted(Message(role="assistant", content=f"a{text}b"), "gold")
    async with serving(engine, family) as gateway, httpx.AsyncClient() as http:
        session = opened(gateway)
        asked = {"role": "user", "content": f"a{text}b"}
        said = (await http.post(f"{session.path_url}/chat/completions", json={"messages": [asked]})).json()
        message = said["choices"][0]["message"]
        assert f"a{text}b" in family.tokenizer.decode(engine.prompts[0])
        assert message["content"] == f"a{text}b"[: len(message["content"])]
        history = {"messages": [asked, message, asked]}
        assert (await http.post(f"{session.path_url}/chat/completions", json=history)).status_code == 200
    sealed = session.seal()
    assert [node.parent for node in sealed.nodes] == [None, 0]
    assert sealed.divergences == ()
