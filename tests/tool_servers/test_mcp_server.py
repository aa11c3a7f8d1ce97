"""Our tools through the official MCP client: over stdio and over HTTP."""

import sys

import pytest

from agar.errors import ToolError, ToolServerError
from agar.tool_servers.config import TOKEN_VARIABLE, ServerConfig
from agar.tool_servers.mcp_tools import McpTools
from agar.tool_servers.server import ToolServer

mcp = pytest.importorskip("mcp")
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
