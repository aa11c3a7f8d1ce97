"""MCP servers of the official SDK as an episode's tools: over stdio and HTTP, in every way that they fail."""

import asyncio
import sys
import textwrap

import pytest

from agar.envs.runner import as_async
from agar.envs.tool_env import ToolEnv
from agar.errors import ConfigError, ToolError, ToolServerError
from agar.tool_servers.config import TOKEN_VARIABLE
from agar.tool_servers.mcp_tools import McpTools
from agar.types import Outcome, ToolCall, Turn

pytest.importorskip("mcp")

SERVER = '''
import os, sys, time
from mcp.server.mcpserver import Image, MCPServer
server = MCPServer("Odd")
count = 0

@server.tool()
def add(by: int = 1) -> str:
    """Add to the count."""
    global count
    count += by
    return f"count {count}"

@server.tool()
def numbers() -> list[int]:
    """Some numbers."""
    return [1, 2]

@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"PNG", format="png")

@server.tool()
def fail() -> str:
    """Raise."""
    raise ValueError("it went wrong")

@server.tool()
async def wait() -> str:
    """Take long."""
    import anyio
    await anyio.sleep(30)
    return "late"

@server.tool()
def die() -> str:
    """End the process."""
    os._exit(3)

server.run()
'''


@pytest.fixture
def box(tmp_path):
    path = tmp_path / "odd_server.py"
    path.write_text(textwrap.dedent(SERVER))
    return McpTools([sys.executable, str(path)])


async def test_the_official_servers_tools_are_listed_and_called_in_a_process_of_each_episode(box):
    async with box.session() as one, box.session() as two:
        specs = {spec.name: spec for spec in one.specs}
        assert specs["add"].description == "Add to the count."
        assert specs["add"].parameters["properties"]["by"]["type"] == "integer"
        assert await one.call("add", {"by": 2}, timeout_s=10) == "count 2"
        assert await one.call("add", {}, timeout_s=10) == "count 3"
        assert await two.call("add", {}, timeout_s=10) == "count 1"
        assert await one.call("numbers", {}, timeout_s=10) == "1\n2"
        assert await one.call("picture", {}, timeout_s=10) == "[image: image/png]"


async def test_what_the_agent_did_wrong_is_a_message_to_it(box):
    async with box.session() as tools:
        for name, arguments, said in (
            ("add", {"by": "many"}, "valid integer"),
            ("add", {"by": "\ud800"}, "half a surrogate pair"),
            ("fail", {}, "Error executing tool fail"),
            ("nothing", {}, "no tool 'nothing'; there are: add"),
        ):
            with pytest.raises(ToolError, match=said):
                await tools.call(name, arguments, timeout_s=10)
        with pytest.raises(ToolError, match=r"wait: no result within 0\.2 s"):
            await tools.call("wait", {}, timeout_s=0.2)
        assert await tools.call("add", {}, timeout_s=10) == "count 1"


async def test_a_server_that_dies_excludes_the_episode(box):
    class Desk(ToolEnv):
        async def areset(self, *, seed=None, options=None):
            await super().areset(seed=seed, options=options)
            return "Go.", {}

    async with as_async(Desk(toolboxes=[box])) as runner:
        await runner.areset()
        *_, truncated, info = await runner.astep(Turn(tool_calls=(ToolCall(id="1", name="die", arguments={}),)))
        assert truncated
        assert info["failure"] is Outcome.INFRA_ERROR
        assert "MCP server" in info["failure_reason"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/no/such/program"], "No such file|not found"),
        ([sys.executable, "-c", "print('hello, I am no MCP server')"], "is no MCP server that we can talk to"),
        ([sys.executable, "-c", "import time; time.sleep(30)"], "is no MCP server that we can talk to: TimeoutError"),
        ([sys.executable, "-c", "import os; os.write(1, bytes(range(256)) * 100)"], "is no MCP server"),
    ],
)
async def test_what_is_no_mcp_server_is_infrastructure(words, said):
    with pytest.raises(ToolServerError, match=said):
        async with McpTools(words, start_timeout_s=3.0).session():
            pass


async def test_an_address_where_nobody_listens_is_infrastructure():
    with pytest.raises(ToolServerError, match="is no MCP server that we can talk to"):
        async with McpTools("http://127.0.0.1:9/mcp", start_timeout_s=5.0).session():
            pass


@pytest.mark.parametrize(("token", "sent"), [(None, []), ("theirs", ["authorization: bearer theirs"])])
async def test_only_a_token_that_was_given_is_sent(monkeypatch, token, sent):
    monkeypatch.setenv(TOKEN_VARIABLE, "our own")
    heads = []

    async def answer(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n"))
        writer.write(b"HTTP/1.1 404 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        with pytest.raises(ToolServerError, match="is no MCP server that we can talk to"):
            async with McpTools(url, token=token, start_timeout_s=5.0).session():
                pass
    assert heads
    for lines in heads:
        assert [line for line in lines if line.startswith("authorization")] == sent


async def test_some_tools_can_be_chosen_and_must_be_there(box):
    box._names = ["add", "wait"]
    async with box.session() as tools:
        assert [spec.name for spec in tools.specs] == ["add", "wait"]
        with pytest.raises(ToolError, match="no tool 'fail'"):
            await tools.call("fail", {}, timeout_s=5)
    box._names = ["add", "fly"]
    with pytest.raises(ConfigError, match="has no tool fly, only add"):
        async with box.session():
            pass


@pytest.mark.parametrize("server", ["", [], "npx server"])
def test_what_is_neither_a_url_nor_a_command_is_refused(server):
    with pytest.raises(ConfigError, match="URL, or a command"):
        McpTools(server)
