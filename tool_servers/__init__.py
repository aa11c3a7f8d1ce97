"""Tools that environments share: services of them, in-process, over HTTP and MCP.

A `Service` is a class of `@tool` methods. `ToolEnv.toolboxes` takes services, `ToolClient(url)` and `McpTools(server)`
alike; `ToolServer` and `agar tools serve` put a service behind HTTP.
"""

if __name__ != "agar.tool_servers":  # reached through the checkout, not the package
    raise ImportError(f"import agar.tool_servers, not {__name__}")

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agar.tool_servers.base import Deadline, Session, Toolbox, Tools
    from agar.tool_servers.client import ToolClient
    from agar.tool_servers.config import ServerConfig, ServiceConfig
    from agar.tool_servers.mcp_tools import McpTools
    from agar.tool_servers.python import Python, PythonConfig
    from agar.tool_servers.server import ToolServer
    from agar.tool_servers.service import Service
    from agar.tool_servers.tools import tool

_EXPORTS = {
    "Deadline": "agar.tool_servers.base",
    "McpTools": "agar.tool_servers.mcp_tools",
    "Python": "agar.tool_servers.python",
    "PythonConfig": "agar.tool_servers.python",
    "ServerConfig": "agar.tool_servers.config",
    "Service": "agar.tool_servers.service",
    "ServiceConfig": "agar.tool_servers.config",
    "Session": "agar.tool_servers.base",
    "ToolClient": "agar.tool_servers.client",
    "ToolServer": "agar.tool_servers.server",
    "Toolbox": "agar.tool_servers.base",
    "Tools": "agar.tool_servers.base",
    "tool": "agar.tool_servers.tools",
}

__all__ = [
    "Deadline",
    "McpTools",
    "Python",
    "PythonConfig",
    "ServerConfig",
    "Service",
    "ServiceConfig",
    "Session",
    "ToolClient",
    "ToolServer",
    "Toolbox",
    "Tools",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'agar.tool_servers' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
