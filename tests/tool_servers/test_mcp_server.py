"""Our tools through the official MCP client: over stdio and over HTTP."""

import asyncio
import sys

import pytest
from tests.tool_servers.scripted import Scripted

from agar.errors import ToolError, ToolServerError
from agar.tool_servers.base import NO_SESSION
from agar.tool_servers.config import TOKEN_VARIABLE, ServerConfig
from agar.tool_servers.mcp_tools import McpTools
from agar.tool_servers.server import ToolServer

mcp = pytest.importorskip("mcp")
httpx2 = pytest.importorskip("httpx2")
streamable_http_client = pytest.importorskip("mcp.client.streamable_http").streamable_http_client
TOKEN = "a-secret-of-many-characters"


async def test_the_official_client_lists_and_calls_our_tools_over_http(service):
    async with ToolServer(service, ServerConfig(port=0, mcp=True)) as server:
        for mode in ("auto", "legacy"):
            async with mcp.Client(f"{server.url}/mcp", mode=mode) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                assert tools["count"].input_schema["properties"]["by"] == {
                    "type": "integer",
                    "description": "how much.",
                }
                found = await client.call_tool("count", {"by": 2})
                assert (found.content[0].text, found.is_error) == ("2", False)
                refused = await client.call_tool("refuse", {})
                assert (refused.content[0].text, refused.is_error) == ("not today", True)
                wrong = await client.call_tool("count", {"by": "x"})
                assert wrong.is_error
                for name, said in (("break_down", "on fire"), ("burn", r"burn \?")):
                    with pytest.raises(mcp.MCPError, match=said):
                        await client.call_tool(name, {})
                for aloud, said in ((True, "say ?"), (False, "refuse ?")):
                    mumbled = await client.call_tool("mumble", {"aloud": aloud})
                    assert (mumbled.content[0].text, mumbled.is_error) == (said, not aloud)


async def test_a_connection_with_a_session_keeps_what_its_calls_leave(service):
    async with (
        ToolServer(service, ServerConfig(port=0, mcp=True)) as server,
        mcp.Client(f"{server.url}/mcp", mode="legacy") as one,
        mcp.Client(f"{server.url}/mcp", mode="legacy") as two,
    ):
        assert (await one.call_tool("count", {"by": 2})).content[0].text == "2"
        assert (await one.call_tool("count", {"by": 2})).content[0].text == "4"
        assert (await two.call_tool("count", {"by": 1})).content[0].text == "1"


async def test_what_is_kept_for_a_connection_is_forgotten_at_its_end(service):
    async with ToolServer(service, ServerConfig(port=0, mcp=True)) as server:
        async with mcp.Client(f"{server.url}/mcp", mode="legacy") as staying:
            async with mcp.Client(f"{server.url}/mcp", mode="legacy") as leaving:
                await leaving.call_tool("count", {"by": 1})
                await staying.call_tool("count", {"by": 1})
                assert (await leaving.call_tool("count", {"by": 1})).content[0].text == "2"
                assert len(service.counts) == 2
            await until(lambda: len(service.counts) == 1)
            assert (await staying.call_tool("count", {"by": 1})).content[0].text == "2"
        await until(lambda: not service.counts)


async def test_interpreters_end_with_their_connections():
    python = Scripted()
    python.go.set()
    async with ToolServer(python, ServerConfig(port=0, mcp=True)) as server:
        for _ in range(3):
            async with mcp.Client(f"{server.url}/mcp", mode="legacy") as client:
                assert (await client.call_tool("python", {"code": "1"})).content[0].text == "1"
        await until(lambda: python.metrics()["python_sessions"] == 0.0)
        assert [sandbox.closed for sandbox in python.sandboxes] == [True] * 3


async def test_a_session_that_a_call_only_claims_is_none(service):
    async with (
        ToolServer(service, ServerConfig(port=0, mcp=True)) as server,
        httpx2.AsyncClient(headers={"mcp-session-id": "x"}, trust_env=False) as http,
        mcp.Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        assert (await client.call_tool("count", {"by": 2})).content[0].text == "2"
        assert set(service.counts) == {NO_SESSION}


async def test_a_call_beyond_the_bound_waits_for_room(service):
    config = ServerConfig(port=0, mcp=True, calls_in_flight=1)
    async with ToolServer(service, config) as server, mcp.Client(f"{server.url}/mcp") as client:
        first = asyncio.create_task(client.call_tool("wait", {}))
        await until(lambda: service.waiting)
        second = asyncio.create_task(client.call_tool("count", {"by": 1}))
        done, _ = await asyncio.wait({first, second}, timeout=0.2)
        assert not done
        assert service.counts == {}
        service.hold.set()
        assert [(await call).content[0].text for call in (first, second)] == ["went on", "1"]


async def until(condition):
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not come about")


async def test_nobody_speaks_mcp_without_the_token(service, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    async with ToolServer(service, ServerConfig(port=0, mcp=True)) as server:
        async with McpTools(f"{server.url}/mcp", token=TOKEN).session() as tools:
            assert await tools.call("count", {"by": 1}, timeout_s=10) == "1"
            with pytest.raises(ToolError, match="not today"):
                await tools.call("refuse", {}, timeout_s=10)
            with pytest.raises(ToolServerError, match="on fire"):
                await tools.call("break_down", {}, timeout_s=10)
        for token in ("wrong", None):
            with pytest.raises(ToolServerError, match="no MCP server that we can talk to"):
                async with McpTools(f"{server.url}/mcp", token=token, start_timeout_s=5).session():
                    pass


async def test_there_is_no_mcp_where_it_was_not_asked_for(server):
    with pytest.raises(ToolServerError):
        async with McpTools(f"{server.url}/mcp", start_timeout_s=5).session():
            pass


SERVED = """
import asyncio
from agar.tool_servers.base import Session
from agar.tool_servers.config import ServiceConfig
from agar.tool_servers.mcp_server import serve_stdio
from agar.tool_servers.service import Service
from agar.tool_servers.tools import tool

class Sum(Service[ServiceConfig]):
    settings = ServiceConfig
    total = 0

    @tool
    async def add(self, by: int, session: Session) -> str:
        '''Add.'''
        assert session.startswith("mcp-")
        self.total += by
        return str(self.total)

asyncio.run(serve_stdio(Sum(ServiceConfig())))
"""


async def test_a_service_speaks_over_standard_input_and_output(tmp_path):
    (tmp_path / "served.py").write_text(SERVED)
    async with McpTools([sys.executable, str(tmp_path / "served.py")]).session() as tools:
        assert [spec.name for spec in tools.specs] == ["add"]
        assert await tools.call("add", {"by": 2}, timeout_s=10) == "2"
        assert await tools.call("add", {"by": 2}, timeout_s=10) == "4"
