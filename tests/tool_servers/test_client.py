"""A server's tools as an episode's: what reaches the agent, and what counts as infrastructure."""

import asyncio
import contextlib
import socket

import pytest

from agar.errors import ToolError, ToolServerError
from agar.tool_servers.client import ToolClient
from agar.tool_servers.config import TOKEN_VARIABLE, ServerConfig
from agar.tool_servers.server import ToolServer


async def test_tools_are_called_in_a_session_that_is_forgotten_at_the_end(server, service):
    box = ToolClient(server.url)
    async with box.session() as one, box.session() as two:
        assert [spec.name for spec in one.specs][:2] == ["count", "refuse"]
        assert one.specs == service.specs
        assert await one.call("count", {"by": 2}, timeout_s=5) == "2"
        assert await one.call("count", {"by": 2}, timeout_s=5) == "4"
        assert await two.call("count", {"by": 1}, timeout_s=5) == "1"
        assert len(service.counts) == 2
    assert service.counts == {}


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("refuse", {}, "not today"),
        ("count", {"by": "\ud800"}, "half a surrogate pair"),
        ("\ud800", {}, "no tool"),
        ("x" * 1000, {}, "no tool"),
        ("wait", {}, "no result within 0.05 s"),
        ("count", {"by": "x" * (5 << 20)}, "too large"),
    ],
)
async def test_what_the_agent_did_wrong_is_a_message_to_it(server, name, arguments, said):
    async with ToolClient(server.url).session() as tools:
        with pytest.raises(ToolError, match=said):
            await tools.call(name, arguments, timeout_s=0.05)


@pytest.mark.parametrize(("name", "said"), [("break_down", "status 503.*on fire"), ("crash", "status 500")])
async def test_a_failure_inside_the_server_is_infrastructure(server, name, said):
    async with ToolClient(server.url).session() as tools:
        with pytest.raises(ToolServerError, match=said):
            await tools.call(name, {}, timeout_s=5)


async def test_the_token_comes_from_the_environment(service, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "a-secret-of-many-characters")
    async with ToolServer(service, ServerConfig(port=0)) as server:
        async with ToolClient(server.url).session() as tools:
            assert await tools.call("count", {"by": 1}, timeout_s=5) == "1"
        with pytest.raises(ToolServerError, match="refuses our token: set AGAR_TOOLS_TOKEN"):
            async with ToolClient(server.url, token="another").session():
                pass


async def test_a_busy_server_is_asked_again(service):
    async with (
        ToolServer(service, ServerConfig(port=0, calls_in_flight=1)) as server,
        ToolClient(server.url).session() as tools,
    ):
        first = asyncio.create_task(tools.call("wait", {}, timeout_s=30))
        second = asyncio.create_task(tools.call("count", {"by": 1}, timeout_s=30))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.3, service.hold.set)
        assert await first == "went on"
        assert await second == "1"


@contextlib.asynccontextmanager
async def answering(reply):
    """A server that sends the same bytes to everybody, what a function gives to each, or nothing at all."""

    async def serve(reader, writer):
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            if reply is None:
                await reader.read()
            writer.write((reply() if callable(reply) else reply) or b"")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def reply(body, *, status="200 OK", kind="application/json"):
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(b"<html>nginx</html>", kind="text/html"), "something else than a ToolList"),
        (reply(b'{"tools": 3}'), "something else than a ToolList"),
        (reply(b"\xff\xfe\x00"), "something else than a ToolList"),
        (reply(b"[" * 1900), "something else than a ToolList"),
        (reply(b"broken", status="500 Internal Server Error"), "status 500"),
        (reply(b"", status="302 Found"), "status 302"),
        (b"garbage that is not HTTP\r\n\r\n", "illegal status line|Illegal|protocol"),
        (b"", "disconnected"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "peer closed|incomplete"),
        (reply(b" " * 3000), "more than 2000 bytes"),
    ],
)
async def test_whatever_else_answers_there_is_infrastructure(answer, said):
    async with answering(answer) as url:
        with pytest.raises(ToolServerError, match=said):
            async with ToolClient(url, reply_bytes=2000).session():
                pass


async def test_a_server_that_is_away_behind_its_proxy_is_waited_for_and_what_may_have_begun_is_not_repeated(
    monkeypatch,
):
    answers = [reply(b"away", status=status) for status in ("502 Bad Gateway", "503 Service Unavailable")]
    tools = reply(b'{"tools": [{"name": "count", "description": "", "parameters": {}}]}')
    answers += [tools, reply(b"away", status="502 Bad Gateway")]
    async with answering(lambda: answers.pop(0)) as url, ToolClient(url).session() as session:
        assert [spec.name for spec in session.specs] == ["count"]
        with pytest.raises(ToolServerError, match="status 502: 'away'"):
            await session.call("count", {}, timeout_s=5)
        answers.append(reply(b"{}"))  # to the farewell
    assert not answers
    monkeypatch.setattr("agar.tool_servers.link.GRACE_S", 0.2)
    async with answering(reply(b"away", status="504 Gateway Timeout")) as url:
        with pytest.raises(ToolServerError, match=r"no answer within 0\.2 s \(last: status 504\)"):
            async with ToolClient(url).session():
                pass


async def test_a_server_that_never_answers_or_is_not_there_is_given_up(monkeypatch):
    monkeypatch.setattr("agar.tool_servers.link.GRACE_S", 0.2)
    async with answering(None) as url:
        with pytest.raises(ToolServerError, match=r"no answer within 0\.2 s"):
            async with ToolClient(url).session():
                pass
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(ToolServerError, match=r"no answer within 0\.2 s \(last: .+\): is the tool server up"):
            async with ToolClient(f"http://127.0.0.1:{taken.getsockname()[1]}").session():
                pass


async def test_a_server_that_dies_in_an_episode_is_infrastructure_and_its_end_is_quiet(service, monkeypatch):
    monkeypatch.setattr("agar.tool_servers.link.GRACE_S", 0.3)
    async with ToolServer(service, ServerConfig(port=0)) as server:
        episode = ToolClient(server.url).session()
        tools = await episode.__aenter__()
        assert await tools.call("count", {"by": 1}, timeout_s=1) == "1"
    with pytest.raises(ToolServerError):
        await tools.call("count", {"by": 1}, timeout_s=0.1)
    await episode.__aexit__(None, None, None)


async def test_a_server_that_was_started_anew_does_not_pass_for_the_one_that_kept_something(service):
    async with contextlib.AsyncExitStack() as old:
        server = await old.enter_async_context(ToolServer(service, ServerConfig(port=0)))
        port = int(server.url.rpartition(":")[2])
        episode = ToolClient(server.url).session()
        tools = await episode.__aenter__()
        assert await tools.call("count", {"by": 1}, timeout_s=5) == "1"
        await old.aclose()
        service.counts.clear()
        async with ToolServer(service, ServerConfig(port=port)):
            with pytest.raises(ToolServerError, match="started later than the episode"):
                await tools.call("count", {"by": 1}, timeout_s=5)
            with pytest.raises(ToolError, match="not today"):  # it keeps nothing: any server will do
                await tools.call("refuse", {}, timeout_s=5)
            async with ToolClient(server.url).session() as fresh:
                assert await fresh.call("count", {"by": 1}, timeout_s=5) == "1"
            await episode.__aexit__(None, None, None)
