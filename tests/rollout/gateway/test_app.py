"""The HTTP surface: whose session a request is for, what it may be, and how a refusal looks."""

import asyncio
import json
import logging

import anthropic
import httpx
import openai
import pytest

from agar.errors import EngineError
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.server import Gateway
from agar.types import Sampling

ASK = {"role": "user", "content": "Start."}
BODIES = {
    "/v1/chat/completions": {"messages": [ASK]},
    "/v1/responses": {"input": "Start."},
    "/v1/messages": {"messages": [ASK], "max_tokens": 8},
    "/v1/messages/count_tokens": {"messages": [ASK]},
}


@pytest.fixture
async def http():
    async with httpx.AsyncClient(timeout=30.0) as http:
        yield http


def opened(gateway, **fields):
    return gateway.open(**({"policy": "main", "sampling": Sampling(max_tokens=8)} | fields))


def url_of(session, path):
    return session.path_url.removesuffix("/v1") + path


def assert_shape(reply, path):
    """A refusal in the shape of the dialect that a path belongs to."""
    body = reply.json()
    assert body["error"]["message"]
    if path.startswith("/v1/messages"):
        assert (body["type"], body["error"]["type"].endswith("_error")) == ("error", True)
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}


# --------------------------------------------------------------------------------------- methods, types, sizes


@pytest.mark.parametrize("path", BODIES)
async def test_a_wrong_method_is_refused_with_the_right_one(gateway, http, path):
    session = opened(gateway)
    for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS"):
        reply = await http.request(method, url_of(session, path), json=BODIES[path])
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
        assert_shape(reply, path)
    reply = await http.post(url_of(session, "/v1/models"), json={})
    assert (reply.status_code, sorted(reply.headers["allow"].split(", "))) == (405, ["GET", "HEAD"])
    assert session.seal().nodes == ()


@pytest.mark.parametrize(
    ("path", "field", "long"),
    [
        ("/v1/chat/completions", "stop", "x" * 257),
        ("/v1/chat/completions", "stop", ["x", "x" * 257]),
        ("/v1/messages", "stop_sequences", ["x", "x" * 257]),
    ],
)
async def test_a_long_stop_text_is_refused_which_an_engine_would_look_for_after_every_token(
    gateway, http, path, field, long
):
    session = opened(gateway)
    reply = await http.post(url_of(session, path), json=BODIES[path] | {field: long})
    assert (reply.status_code, field in reply.json()["error"]["message"]) == (400, True)
    assert_shape(reply, path)
    fits = ["x" * 256] * 32
    assert (await http.post(url_of(session, path), json=BODIES[path] | {field: fits})).status_code == 200


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_a_body_that_is_not_json_by_its_type_is_a_415(gateway, http, path, kind):
    session = opened(gateway)
    headers = {"content-type": kind}
    reply = await http.post(url_of(session, path), content=json.dumps(BODIES[path]), headers=headers)
    assert reply.status_code == 415
    assert_shape(reply, path)
    assert session.seal().nodes == ()


@pytest.mark.parametrize(
    "kind", [None, "application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.x+json"]
)
async def test_json_by_any_other_name_is_json(gateway, http, kind):
    headers = {} if kind is None else {"content-type": kind}
    body = json.dumps(BODIES["/v1/responses"]).encode()
    assert (await http.post(url_of(opened(gateway), "/v1/responses"), content=body, headers=headers)).status_code == 200


GARBAGE = [b"", b"{", b"null", b"[]", b"\xff\xfe{}", b'{"messages": NaN}', b'{"a":' * 3000, b"[" * 100_000]
GARBAGE += [b'{"model":"\xc3\x28"}', b'{"model":"\\ud800"}', b"\xef\xbb\xbf{}", '{"model":"é"}'.encode("utf-16")]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_a_400_of_the_dialect(gateway, http, path, body):
    session = opened(gateway)
    reply = await http.post(url_of(session, path), content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert_shape(reply, path)
    assert (await http.post(url_of(session, path), json=BODIES[path])).status_code == 200


def long_histories(rows: int) -> dict[str, dict]:
    said = [
        {"role": "assistant", "content": f"box {n}"} if n % 2 else {"role": "user", "content": f"cat {n}"}
        for n in range(rows + 1 - rows % 2)
    ]
    return {
        "/v1/chat/completions": {"messages": said},
        "/v1/responses": {"input": said},
        "/v1/messages": {"messages": said, "max_tokens": 8},
        "/v1/messages/count_tokens": {"messages": said},
    }


@pytest.mark.parametrize("path", BODIES)
async def test_a_history_of_ten_thousand_messages_is_served(gateway, http, trained, path):
    session = opened(gateway)
    assert (await http.post(url_of(session, path), json=long_histories(10_000)[path])).status_code == 200
    sealed = session.seal()
    assert len(sealed.nodes) == (0 if path.endswith("count_tokens") else 1)
    trained(sealed)


@pytest.mark.parametrize("path", BODIES)
async def test_a_megabyte_of_text_is_served(gateway, http, path):
    session = opened(gateway)
    large = json.loads(json.dumps(BODIES[path]).replace("Start.", "cat 47 " * 150_000))
    assert (await http.post(url_of(session, path), json=large)).status_code == 200
    assert len(session.seal().nodes) == (0 if path.endswith("count_tokens") else 1)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_huge_tool_schemas_are_served_and_bottomless_ones_are_not(gateway, http, path):
    session = opened(gateway)

    def tools(parameters):
        named = [{"name": f"sh{n}", "description": "x" * 500} for n in range(200)]
        if path == "/v1/messages":
            return [tool | {"input_schema": parameters} for tool in named]
        if path == "/v1/responses":
            return [{"type": "function", "parameters": parameters} | tool for tool in named]
        return [{"type": "function", "function": tool | {"parameters": parameters}} for tool in named]

    wide = {"type": "object", "properties": {f"field{n}": {"type": "string"} for n in range(40)}}
    bottomless: dict = {}
    for _ in range(200):
        bottomless = {"a": bottomless}
    for parameters, status in ((wide, 200), (bottomless, 400), ("x", 400)):
        reply = await http.post(url_of(session, path), json=BODIES[path] | {"tools": tools(parameters)})
        assert reply.status_code == status, reply.text
    assert len(session.seal().nodes) == 1


@pytest.mark.parametrize("path", BODIES)
async def test_a_body_beyond_the_limit_is_a_413_of_the_dialect(family, engine, http, path):
    config = GatewayConfig(body_bytes=2048)
    async with Gateway(engines={"main": engine}, families={"main": family}, config=config) as gateway:
        session = opened(gateway)
        reply = await http.post(url_of(session, path), json=BODIES[path] | {"user": "x" * 4096})
        assert (reply.status_code, session.seal().nodes) == (413, ())
        error = reply.json()["error"]
        assert error["type"] == ("request_too_large" if "messages" in path else "invalid_request_error")


@pytest.mark.parametrize(("kind", "status"), [("application/json", 413), ("text/plain", 415)])
async def test_a_client_that_still_sends_learns_why_it_is_refused(family, engine, http, kind, status):
    config = GatewayConfig(body_bytes=2048)
    async with Gateway(engines={"main": engine}, families={"main": family}, config=config) as gateway:
        url = url_of(opened(gateway), "/v1/chat/completions")
        body = b'"' + b"x" * (8 << 20) + b'"'

        async def pieces():
            for at in range(0, len(body), 1 << 20):
                yield body[at : at + (1 << 20)]

        for content in (body, pieces()):
            reply = await http.post(url, content=content, headers={"content-type": kind})
            assert reply.status_code == status
        assert (await http.post(url, json={"messages": [ASK]})).status_code == 200


@pytest.mark.parametrize("path", BODIES)
async def test_a_body_that_does_not_arrive_is_a_408_of_the_dialect(family, engine, path):
    config = GatewayConfig(body_timeout_s=0.05)
    async with Gateway(engines={"main": engine}, families={"main": family}, config=config) as gateway:
        session = opened(gateway)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.base_url.split(":")[2].split("/")[0]))
        target = url_of(session, path).partition("/s/")
        writer.write(f"POST /s/{target[2]} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{".encode())
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            error = json.loads(await reader.readexactly(length))["error"]
        writer.close()
        await writer.wait_closed()
    assert (head.split()[1], "within 0.05 s" in error["message"]) == (b"408", True)
    assert error["type"] == ("timeout_error" if "messages" in path else "invalid_request_error")


# ------------------------------------------------------------------------------------------- paths and sessions


async def raw(gateway, target: bytes, key: bytes = b"", body: bytes = b'{"messages":[{"role":"user","content":"x"}]}'):
    """Status and body of a request whose target no client library has tidied up."""
    port = int(gateway.base_url.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n" % target
    writer.write(head + key + b"content-length: %d\r\n\r\n" % len(body) + body)
    async with asyncio.timeout(20):
        reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, content = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), content


TRICKS = [
    b"..",
    b"%2e%2e",
    b".",
    b"%2e",
    b"%00",
    b"%ff",
    b"%c0%ae",
    b"a%2fb",
    b"a%2F..%2Fb",
    b"*",
    b"%0d%0ax:y",
    b"{session}",
]
TRICKS += [b"x" * 20_000, b"None", b"null", b"%20", b"%252e%252e", b"agar-", "é".encode()]


@pytest.mark.parametrize("name", TRICKS, ids=range(len(TRICKS)))
async def test_no_trick_in_a_path_opens_a_session(gateway, name):
    session = opened(gateway)
    for prefix in (b"/s/%b" % name, b"/s/%b/" % name, b"/s/%b/../%b" % (session.id.encode(), name)):
        status, content = await raw(gateway, prefix + b"/v1/chat/completions")
        assert status in (400, 401, 404)
        assert session.id.encode() not in content
        if status != 400 or content.startswith(b"{"):  # what is no HTTP at all is refused before there is a dialect
            assert json.loads(content)["error"]["type"] == "invalid_request_error"
    assert session.seal().nodes == ()


async def test_a_session_in_the_path_is_the_one_that_counts(gateway):
    mine, other = opened(gateway), opened(gateway)
    key = b"authorization: Bearer %b\r\n" % other.id.encode()
    assert (await raw(gateway, b"/s/%b/v1/chat/completions" % mine.id.encode(), key))[0] == 200
    assert (await raw(gateway, b"/s/guess/v1/chat/completions", key))[0] == 401
    for target in (b"/s/%b/v1/chat/completions/" % mine.id.encode(), b"//v1/chat/completions", b"/v1/../v1/models"):
        assert (await raw(gateway, target, key))[0] in (307, 401, 404, 405)
    assert (len(mine.seal().nodes), len(other.seal().nodes)) == (1, 0)


@pytest.mark.parametrize("header", ["", "Bearer", "Basic x", "bearer x", "\xe9", "Bearer x y"])
async def test_a_key_that_is_none_opens_nothing(gateway, http, header):
    for path, body in BODIES.items():
        reply = await http.post(
            gateway.base_url.removesuffix("/v1") + path, json=body, headers={"authorization": header.encode("latin-1")}
        )
        assert reply.status_code == 401
        assert_shape(reply, path)


async def test_a_session_sees_nothing_of_another(gateway, http):
    """Neither by a response's id, nor by a thread's, nor by repeating its body."""
    mine, other = opened(gateway), opened(gateway)
    stored = (await http.post(url_of(mine, "/v1/responses"), json=BODIES["/v1/responses"])).json()["id"]
    thread = BODIES["/v1/messages"] | {"thread": {"type": "create"}}
    held = (await http.post(url_of(mine, "/v1/messages"), json=thread)).json()["id"]
    body = {"input": "x", "previous_response_id": stored}
    assert (await http.post(url_of(other, "/v1/responses"), json=body)).status_code == 400
    body = BODIES["/v1/messages"] | {"thread": {"type": "continue", "previous_message_id": held}}
    refused = await http.post(url_of(other, "/v1/messages"), json=body)
    assert refused.json()["error"]["details"] == {"error_code": "thread_not_found"}
    assert other._forest.nodes == []
    again = await http.post(url_of(other, "/v1/responses"), json=BODIES["/v1/responses"])
    assert again.json()["id"] != stored
    assert (await http.post(url_of(mine, "/v1/messages"), json=body)).status_code == 200
    assert (len(mine.seal().nodes), len(other.seal().nodes)) == (3, 1)


async def test_sealing_one_session_leaves_the_others(gateway, http):
    mine, other = opened(gateway), opened(gateway)
    mine.seal()
    for path, body in BODIES.items():
        assert (await http.post(url_of(mine, path), json=body)).status_code == 401
        assert (await http.post(url_of(other, path), json=body)).status_code == 200


# --------------------------------------------------------------------------------- keys, leaving, official clients


async def test_keys_are_in_no_log(family, engine, caplog):
    class Failing:
        async def generate(self, ids, sampling, *, routing_key):
            raise self.failure

    for name in ("", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "agar"):
        caplog.set_level(logging.DEBUG, logger=name or None)
    failing = Failing()
    async with Gateway(engines={"main": engine, "bad": failing}, families={"main": family, "bad": family}) as gateway:
        good, bad = opened(gateway), opened(gateway, policy="bad")
        for session in (good, bad):
            for failing.failure in (EngineError("gone"), RuntimeError("a defect")):
                key = session.id.encode()
                for target in (b"/s/%b/v1/chat/completions", b"/s/%b/v1/nothing", b"/s/%b/v1/messages"):
                    for body in (b"{", b'{"messages":[{"role":"user","content":"x"}]}'):
                        await raw(gateway, target % key, body=body)
                await raw(gateway, b"/v1/chat/completions", b"authorization: Bearer %b\r\n" % key)
                await raw(gateway, b"/v1/messages", b"x-api-key: %b\r\nexpect: nonsense\r\n" % key, body=b"\xff")
            async with (
                openai.AsyncOpenAI(base_url=session.base_url, api_key=session.id, max_retries=1) as ours,
                anthropic.AsyncAnthropic(
                    base_url=session.base_url.removesuffix("/v1"), auth_token=session.id, max_retries=0
                ) as theirs,
            ):
                for call in (
                    ours.chat.completions.create(model="m", messages=[ASK]),
                    theirs.messages.create(model="m", max_tokens=8, messages=[ASK]),
                ):
                    try:
                        await call
                    except (openai.APIError, anthropic.APIError):
                        assert session is bad
            session.seal()
    told = [f"{record.getMessage()} {record.args} {record.exc_text}" for record in caplog.records]
    assert any("a defect" in line for line in told)  # the log was on
    assert not [line for line in told if good.id in line or bad.id in line]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_a_caller_that_leaves_a_stream_ends_its_generation_in_every_dialect(stalling, family, path):
    async with Gateway(engines={"main": stalling}, families={"main": family}) as gateway:
        session = opened(gateway)
        async with httpx.AsyncClient() as client:
            leaving = asyncio.create_task(client.post(url_of(session, path), json=BODIES[path] | {"stream": True}))
            await stalling.asked.wait()
            leaving.cancel()
            await asyncio.wait({leaving})
        async with asyncio.timeout(10):
            while not stalling.given_up:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        sealed = session.seal()
    assert (sealed.nodes, sealed.open_calls) == ((), 0)


async def test_official_clients_work_from_threads(gateway):
    """The synchronous clients, streams among them."""
    session = opened(gateway, sampling=Sampling(max_tokens=64))
    url = session.base_url

    def play():
        with openai.OpenAI(base_url=url, api_key=session.id, max_retries=0) as ours:
            first = ours.chat.completions.create(model="m", messages=[ASK])
            with ours.chat.completions.stream(model="m", messages=[ASK], n=2) as stream:
                both = stream.get_final_completion()
            with ours.responses.stream(model="m", input="Start.") as stream:
                kinds = [event.type for event in stream]
        with anthropic.Anthropic(base_url=url.removesuffix("/v1"), auth_token=session.id, max_retries=0) as theirs:
            with theirs.messages.stream(model="m", max_tokens=8, messages=[ASK]) as stream:
                text = stream.get_final_text()
            counted = theirs.messages.count_tokens(model="m", messages=[ASK]).input_tokens
        return first, both, kinds[-1], text, counted

    first, both, last, text, counted = await asyncio.to_thread(play)
    assert (first.choices[0].message.content, len(both.choices), last, text) == (
        "Look.",
        2,
        "response.completed",
        "again",
    )
    assert counted == first.usage.prompt_tokens
    assert len(session.seal().nodes) == 5
