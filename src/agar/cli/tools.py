"""`agar tools list`, `serve NAME`, `mcp NAME`."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agar.tool_servers.service import Service


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="every tool server that is known by name, those of packages included")
    for name, text in (
        ("serve", "serve tools over HTTP until interrupted"),
        ("mcp", "serve tools to one MCP client over standard input and output"),
    ):
        own = actions.add_parser(name, help=text, epilog="Any setting may follow: --server.port 8600.")
        own.add_argument("name", metavar="NAME", help="a name that `agar tools list` shows, or module:Class")
        own.add_argument("--config", type=Path, metavar="FILE", help="its settings, as TOML")


def run(options: argparse.Namespace) -> int:
    """List or serve.

    Raises:
        ConfigError: there is no such tool server, or a setting cannot be used; nothing has started.
    """
    if options.action == "list":
        return show_list()
    from agar.config import resolve
    from agar.tool_servers.catalogue import find

    kind = find(options.name)
    files = [options.config] if options.config else []
    service = kind(resolve(kind.settings, files=files, overrides=options.overrides).config)
    try:
        asyncio.run(serve(options.name, service) if options.action == "serve" else speak(service))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    return 0


def show_list() -> int:
    """Print the names and what is behind them."""
    from agar.tool_servers.catalogue import known

    for name, target in sorted(known().items()):
        print(f"{name:<12}  {target}")
    return 0


async def serve(name: str, service: "Service[Any]") -> None:
    """Serve until cancelled."""
    from agar.tool_servers.server import ToolServer

    async with ToolServer(service) as server:
        tools = ", ".join(spec.name for spec in service.specs)
        print(f"{name} serves {tools} on {server.url}; OpenAPI at {server.url}/openapi.json", flush=True)
        await asyncio.Event().wait()


async def speak(service: "Service[Any]") -> None:
    """Serve one MCP client until it hangs up."""
    from agar.tool_servers.mcp_server import serve_stdio

    await serve_stdio(service, timeout_s=service.config.server.call_timeout_s)
