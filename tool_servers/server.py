"""A service behind HTTP, inside the caller's event loop."""

import contextlib
from pathlib import Path
from typing import Any, Self

from agar.tool_servers.config import ServerConfig
from agar.tool_servers.own_task import OwnTask
from agar.tool_servers.service import Service


class ToolServer:
    """Serves a service while it is open: an async context manager, which opens and closes the service too.

    Args:
        service: what is served.
        config: where, and for whom; the service's own `server` settings if None.
    """

    def __init__(self, service: Service[Any], config: ServerConfig | None = None) -> None:
        """See the class.

        Raises:
            ConfigError: others can reach the address and there is no token.
            MissingExtraError: fastapi, uvicorn or prometheus-client is not installed.
        """
        from agar.errors import MissingExtraError, to_install

        try:
            from agar.serving.listener import Listener
            from agar.tool_servers.app import build_app
        except ImportError as error:
            raise MissingExtraError(f"serving tools needs {error.name}: {to_install('tools')}") from error
        self.config: ServerConfig = config or service.config.server
        self._service = service
        self._mcp: OwnTask[None] | None = None
        speaker = None
        if self.config.mcp:
            from agar.tool_servers.mcp_server import build_http

            manager = build_http(service, timeout_s=self.config.call_timeout_s, body_bytes=self.config.body_bytes)
            self._mcp, speaker = OwnTask(manager.run(), name="agar-mcp"), manager.asgi_app
        self._listener = Listener(
            build_app(service, self.config, mcp=speaker),
            name="tools",
            host=self.config.host,
            port=self.config.port,
            shutdown_timeout_s=self.config.shutdown_timeout_s,
            head_timeout_s=self.config.head_timeout_s,
        )

    @property
    def url(self) -> str:
        """Where it is served, without a slash at the end."""
        host = f"[{self._listener.host}]" if ":" in self._listener.host else self._listener.host
        return f"http://{host}:{self._listener.port}"

    @property
    def socket_path(self) -> Path | None:
        """The unix socket that serves the same; None while it is not open."""
        return self._listener.socket_path

    async def __aenter__(self) -> Self:
        await self._service.open()
        try:
            if self._mcp is not None:
                await self._mcp.open(timeout_s=self.config.shutdown_timeout_s)
            await self._listener.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        async with contextlib.AsyncExitStack() as stack:  # each of them, whatever the one before it raised
            stack.push_async_callback(self._service.close)
            if self._mcp is not None:
                stack.push_async_callback(self._mcp.close, timeout_s=self.config.shutdown_timeout_s)
            await self._listener.stop()
