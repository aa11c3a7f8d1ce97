"""Our tools as an MCP server, through the official SDK: over standard input and output, or at `/mcp`."""

import secrets
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from agar.errors import AgarError, MissingExtraError, ToolError, to_install
from agar.tool_servers.base import NO_SESSION, Session
from agar.tool_servers.service import Service
from agar.tool_servers.text import sendable

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_STATE = "agar_session"


def build_mcp(service: Service[Any], *, session: Session = NO_SESSION, timeout_s: float = 60.0) -> "Server[Any]":
    """An MCP server over an open service.

    Args:
        service: what is served.
        session: the episode of calls that do not come with an MCP session of their own.
        timeout_s: deadline of a call whose tool has none, in seconds.

    Raises:
        MissingExtraError: the `mcp` package is not installed.
    """
    try:
        from mcp import types
        from mcp.server import Server
        from mcp.shared.exceptions import MCPError
    except ImportError as error:
        raise MissingExtraError(f"an MCP server needs the mcp package: {to_install('mcp')}") from error

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        del context, params
        tools = [
            types.Tool(name=spec.name, description=spec.description, input_schema=dict(spec.parameters))
            for spec in service.specs
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> types.CallToolResult:
        try:
            text = await service.call(
                params.name,
                params.arguments or {},
                session=_session_of(context, service) or session,
                timeout_s=timeout_s,
            )
        except ToolError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        except AgarError as error:
            raise MCPError(types.INTERNAL_ERROR, sendable(str(error))) from error
        return types.CallToolResult(content=[types.TextContent(text=text)])

    return Server(
        type(service).__name__,
        version=version("agar"),
        instructions=(type(service).__doc__ or "").strip(),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _session_of(context: Any, service: Service[Any]) -> Session | None:
    """The episode of a connection that has a session of the protocol's; it is forgotten when the connection ends."""
    # The SDK's connection has what handlers need for that, but what they are given does not show it (mcp 2.3).
    connection = context.session._connection
    if connection.session_id is None:
        return None
    if _STATE not in connection.state:
        session = connection.state[_STATE] = Session(f"mcp-{connection.session_id}")
        connection.exit_stack.push_async_callback(service.forget, session)
    return Session(connection.state[_STATE])


def build_http(service: Service[Any], *, timeout_s: float, body_bytes: int) -> "StreamableHTTPSessionManager":
    """The same over HTTP: its `asgi_app` answers while its `run` is entered. Whoever serves it checks who calls.

    Args:
        service: what is served.
        timeout_s: deadline of a call whose tool has none, in seconds.
        body_bytes: the largest request body.

    Raises:
        MissingExtraError: the `mcp` package is not installed.
    """
    server = build_mcp(service, timeout_s=timeout_s)
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    return StreamableHTTPSessionManager(server, json_response=True, max_request_body_size=body_bytes)


async def serve_stdio(service: Service[Any], *, timeout_s: float = 60.0) -> None:
    """Serve one client over standard input and output until it hangs up; all of its calls are one session.

    Args:
        service: what is served; opened and closed here.
        timeout_s: deadline of a call whose tool has none, in seconds.

    Raises:
        MissingExtraError: the `mcp` package is not installed.
    """
    session = Session(f"mcp-{secrets.token_hex(8)}")
    server = build_mcp(service, session=session, timeout_s=timeout_s)
    from mcp.server.stdio import stdio_server

    async with service, stdio_server() as (read, write):
        try:
            await server.run(read, write, server.create_initialization_options())
        finally:
            await service.forget(session)
