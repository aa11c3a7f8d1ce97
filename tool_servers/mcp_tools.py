"""The tools of any MCP server as an episode's tools, through the official SDK."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agar.errors import ConfigError, MissingExtraError, ToolError, ToolServerError, to_install
from agar.tool_servers.base import Tools
from agar.tool_servers.own_task import OwnTask
from agar.tool_servers.urls import public, without_keys
from agar.types import ToolSpec

if TYPE_CHECKING:
    from mcp import Client

_CLOSE_TIMEOUT_S = 10.0


class McpTools:
    """A `Toolbox` over MCP. Every episode has a connection of its own; with a command, a server process of its own.

    Args:
        server: an HTTP URL, or the command that starts a server which speaks over its input and output.
        env: more environment variables of the command; it inherits PATH, HOME and the like, nothing else.
        cwd: its working directory.
        token: sent to a URL as a bearer token; None sends none, for the server may be anybody's.
        names: the tools to take, by name; all of them if None.
        start_timeout_s: how long a connection may take, the start of a process included.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        token: str | None = None,
        names: Sequence[str] | None = None,
        start_timeout_s: float = 30.0,
    ) -> None:
        """See the class.

        Raises:
            ConfigError: the server is neither a URL nor a command of at least one word.
        """
        if (isinstance(server, str) and not server.startswith(("http://", "https://"))) or not server:
            raise ConfigError(f"McpTools({server!r}): give an http(s) URL, or a command as a list of words")
        self.server: str | tuple[str, ...] = server if isinstance(server, str) else tuple(server)
        self._env, self._cwd, self._names = env, cwd, names
        self._token, self._start_timeout_s = token, start_timeout_s

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Tools]:
        """See `Toolbox.session`.

        Raises:
            ToolServerError: on entering: it cannot be reached or started, or is no MCP server.
            ConfigError: on entering: it lacks a tool that `names` lists.
            MissingExtraError: the `mcp` package is not installed.
        """
        try:
            import mcp  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"MCP servers need the mcp package: {to_install('mcp')}") from error
        held = OwnTask(self._connected(), name=f"agar-mcp-{self._shown}")
        try:
            tools = await held.open(timeout_s=self._start_timeout_s)
        except Exception as error:
            raise self._failed("is no MCP server that we can talk to", error) from error
        try:
            tools.specs = self._chosen(tools.specs)
            yield tools
        finally:
            with contextlib.suppress(Exception):  # the episode is over, and the process or connection gone
                await held.close(timeout_s=_CLOSE_TIMEOUT_S)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator["_McpSession"]:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client

        async with contextlib.AsyncExitStack() as stack:
            if isinstance(self.server, str):
                transport: Any = await self._over_http(stack)
            else:
                command = StdioServerParameters(
                    command=self.server[0], args=list(self.server[1:]), env=dict(self._env or {}), cwd=self._cwd
                )
                silence = stack.enter_context(open(os.devnull, "w"))  # noqa: ASYNC230, SIM115  # it never blocks
                transport = stdio_client(command, errlog=silence)
            client = await stack.enter_async_context(Client(transport))
            yield _McpSession(client, await _listed(client), self._shown, self.server)

    async def _over_http(self, stack: contextlib.AsyncExitStack) -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        assert isinstance(self.server, str), "a URL"
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        # Deadlines are ours: a call may take as long as its tool's allows.
        timeout = httpx2.Timeout(None, connect=self._start_timeout_s)
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False))
        return streamable_http_client(self.server, http_client=http)

    def _chosen(self, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        if self._names is None:
            return specs
        if missing := set(self._names) - {spec.name for spec in specs}:
            there = ", ".join(spec.name for spec in specs)
            raise ConfigError(f"the MCP server {self._shown} has no tool {', '.join(sorted(missing))}, only {there}")
        return tuple(spec for spec in specs if spec.name in self._names)

    @property
    def _shown(self) -> str:
        return public(self.server) if isinstance(self.server, str) else self.server[0]

    def _failed(self, how: str, error: BaseException) -> ToolServerError:
        return ToolServerError(f"{self._shown} {how}: {_first(error, self.server)}")


class _McpSession:
    """The tools of one connection."""

    def __init__(
        self, client: "Client", specs: tuple[ToolSpec, ...], shown: str, server: str | tuple[str, ...]
    ) -> None:
        self._client, self._shown, self._server = client, shown, server
        self.specs = specs

    async def call(self, name: str, arguments: Mapping[str, Any], *, timeout_s: float) -> str:
        """See `Tools.call`."""
        from mcp.shared.exceptions import MCPError
        from mcp.types import INVALID_PARAMS, METHOD_NOT_FOUND

        names = [spec.name for spec in self.specs]
        if name not in names:
            raise ToolError(f"no tool {name!r}; there are: {', '.join(names) or 'none'}")
        try:
            json.dumps(dict(arguments), ensure_ascii=False, default=str).encode()
        except UnicodeEncodeError as error:
            raise ToolError(f"{name}: an argument holds half a surrogate pair") from error
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                result = await self._client.call_tool(name, dict(arguments))
        except MCPError as error:
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):  # how servers refuse what a model has sent
                raise ToolError(f"{name}: {error.message}") from error
            raise ToolServerError(f"the MCP server {self._shown} failed at {name}: {error.message}") from error
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise ToolError(f"{name}: no result within {timeout_s:g} s") from error
        except Exception as error:
            raise ToolServerError(f"the MCP server {self._shown} has gone: {_first(error, self._server)}") from error
        text = _text(result)
        if result.is_error:
            raise ToolError(text)
        return text


async def _listed(client: "Client") -> tuple[ToolSpec, ...]:
    specs: list[ToolSpec] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        specs += [
            ToolSpec(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor:
            return tuple(specs)


def _text(result: Any) -> str:
    """What a result says; images and the like by kind and size."""
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource" and getattr(block.resource, "text", None) is not None:
            parts.append(block.resource.text)
        else:
            kind = getattr(block, "mime_type", None) or getattr(block, "uri", None) or block.type
            parts.append(f"[{block.type}: {kind}]")
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _first(error: BaseException, server: str | tuple[str, ...]) -> str:
    """What is said in a group of errors, which is what the SDK's tasks end in; without what a URL holds of keys."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return without_keys(server, said) if isinstance(server, str) else said
