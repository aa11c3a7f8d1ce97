"""A service over HTTP: calls, sessions, health, metrics, OpenAPI, token, bounds."""

import asyncio
import json

import httpx
import pytest

from agar.errors import ConfigError
from agar.tool_servers.config import TOKEN_VARIABLE, ServerConfig
from agar.tool_servers.server import ToolServer

TOKEN = "a-secret-of-many-characters"


@pytest.fixture
async def http(server):
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        yield client


async def call(http, name, arguments=None, **more):
    return await http.post("/call", json={"name": name, "arguments": arguments or {}, **more})


async def test_tools_are_listed_with_their_schema(http):
    listed = {tool["name"]: tool for tool in (await http.get("/tools")).json()["tools"]}
    assert listed["count"]["description"] == "Add to the episode's count."
    assert listed["count"]["parameters"]["properties"] == {"by": {"type": "integer", "description": "how much."}}


async def test_sessions_are_kept_apart_until_they_are_forgotten(http, service):
    assert (await call(http, "count", {"by": 2}, session="a")).json() == {"text": "2", "is_error": False}
    assert (await call(http, "count", {"by": 3}, session="a")).json()["text"] == "5"
    assert (await call(http, "count", {"by": 1}, session="b")).json()["text"] == "1"
    assert (await http.delete("/sessions/a")).status_code == 204
    assert service.counts == {"b": 1}
    assert (await http.delete("/sessions/never")).status_code == 204


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("refuse", {}, "not today"),
        ("nothing", {}, "no tool 'nothing'; there are: count"),
        ("count", {}, "by: Field required"),
        ("count", {"by": "\ud800"}, "half a surrogate pair"),
        ("wait", {}, "wait: no result within 0.05 s"),
    ],
)
async def test_what_is_wrong_with_a_call_is_told_in_the_reply(http, name, arguments, said):
    body = json.dumps({"name": name, "arguments": arguments, "timeout_s": 0.05})
    answer = await http.post("/call", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert answer.json()["is_error"] is True
    assert said in answer.json()["text"]


async def test_half_a_surrogate_pair_is_no_failure_of_the_server(http):
    assert (await call(http, "mumble", {"aloud": True})).json() == {"text": "say ?", "is_error": False}
    assert (await call(http, "mumble", {"aloud": False})).json() == {"text": "refuse ?", "is_error": True}
    answer = await call(http, "burn")
    assert (answer.status_code, answer.json()["detail"]) == (503, "burn ?")


@pytest.mark.parametrize(
    ("name", "status", "said"), [("break_down", 503, "on fire"), ("crash", 500, "ZeroDivisionError inside")]
)
async def test_a_failure_inside_is_not_the_callers(http, name, status, said):
    answer = await call(http, name)
    assert answer.status_code == status
    assert said in answer.json()["detail"]
    assert (await call(http, "count", {"by": 1})).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"name": 3}',
        b'{"name": "\\ud800"}',
        b'{"name": "count", "surplus": 1}',
        b'{"name": "count", "arguments": "\\ud800"}',
        b'{"name": "count", "timeout_s": NaN}',
    ],
)
async def test_a_body_of_another_form_is_refused_and_does_no_harm(http, body):
    answer = await http.post("/call", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["detail"]
    assert (await http.get("/health")).json() == {"status": "ok", "service": "Counting"}


async def test_metrics_count_calls_by_outcome_and_show_the_services_own(http):
    await call(http, "count", {"by": 1}, session="a")
    await call(http, "refuse")
    await call(http, "break_down")
    await call(http, "stranger")
    text = (await http.get("/metrics")).text
    for line in (
        'agar_tool_calls_total{outcome="ok",tool="count"} 1.0',
        'agar_tool_calls_total{outcome="refused",tool="refuse"} 1.0',
        'agar_tool_calls_total{outcome="failed",tool="break_down"} 1.0',
        'agar_tool_calls_total{outcome="refused",tool="unknown"} 1.0',
        'agar_tool_call_seconds_count{tool="count"} 1.0',
        "agar_tool_calls_in_flight 0.0",
        "agar_episodes 1.0",
    ):
        assert line in text


async def test_the_openapi_document_describes_the_calls_and_the_token(http):
    document = (await http.get("/openapi.json")).json()
    assert {"/tools", "/call", "/sessions/{session}", "/metrics", "/health"} <= set(document["paths"])
    assert document["paths"]["/call"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in document["paths"]["/health"]["get"]
    assert set(document["components"]["schemas"]["CallReply"]["properties"]) == {"text", "is_error"}


async def test_nobody_gets_further_than_health_without_the_token(service, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    async with ToolServer(service, ServerConfig(port=0)) as server, httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get("/health")).status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
            for method, path in (("GET", "/tools"), ("POST", "/call"), ("GET", "/metrics"), ("GET", "/openapi.json")):
                answer = await http.request(method, path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert (await http.get("/tools", headers={"authorization": f"bearer {TOKEN}"})).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
async def test_an_address_that_others_can_reach_needs_a_token(service, host, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="can be reached by others: set AGAR_TOOLS_TOKEN"):
        ToolServer(service, ServerConfig(host=host, port=0))
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(ConfigError, match="can be guessed"):
        ToolServer(service, ServerConfig(host=host, port=0))


async def test_a_call_beyond_the_bound_is_told_to_come_again(service):
    async with (
        ToolServer(service, ServerConfig(port=0, calls_in_flight=1)) as server,
        httpx.AsyncClient(base_url=server.url) as http,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(call(http, "wait"))
        for _ in range(1000):
            if "in_flight 1.0" in (await http.get("/metrics")).text:
                break
            await asyncio.sleep(0.01)
        busy = await call(http, "refuse")
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
        service.hold.set()
        assert (await first).json()["text"] == "went on"
        assert (await call(http, "refuse")).status_code == 200


async def test_a_body_that_is_too_large_or_too_slow_is_refused(service):
    async def trickle():
        yield b"{"
        await asyncio.sleep(30)

    async def flood():
        for _ in range(20):
            yield b" " * 1000

    config = ServerConfig(port=0, body_bytes=2000, body_timeout_s=0.2)
    async with ToolServer(service, config) as server, httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.post("/call", content=b" " * 3000)).status_code == 413
        assert (await http.post("/call", content=flood())).status_code == 413
        assert (await http.post("/call", content=b"{}")).status_code == 422
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.write(b"POST /call HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        writer.close()


async def test_the_service_is_open_while_it_is_served(service):
    async with ToolServer(service, ServerConfig(port=0)):
        assert service.opened == 1
    assert service.opened == 0


async def test_a_web_page_whose_name_leads_here_is_refused_where_there_is_no_token(http):
    for host, status in (("evil.example", 403), ("evil.example:80", 403), ("localhost:1", 200), ("[::1]", 200)):
        assert (await http.get("/health", headers={"host": host})).status_code == status


async def test_the_unix_socket_serves_the_same(server):
    transport = httpx.AsyncHTTPTransport(uds=str(server.socket_path))
    async with httpx.AsyncClient(transport=transport, base_url="http://tools") as http:
        assert (await http.get("/tools")).status_code == 200
