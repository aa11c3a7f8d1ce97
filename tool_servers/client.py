"""Tools of a server as tools of an episode: the other end of `app.py`."""

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

from agar.errors import ToolError, ToolServerError
from agar.tool_servers.base import Tools
from agar.tool_servers.config import TOKEN_VARIABLE
from agar.tool_servers.link import Link
from agar.tool_servers.wire import CallReply, ToolList
from agar.types import ToolSpec


class ToolClient:
    """A `Toolbox` over HTTP.

    A request that never reached the server, or found it busy, is made again; one that may have begun is not, for a
    tool may have effects.

    Args:
        url: the server, as `agar tools serve` prints it.
        token: its token; the environment variable `AGAR_TOOLS_TOKEN` if None.
        connect_timeout_s: the longest wait for a connection.
        reply_bytes: the largest reply that is read.
    """

    def __init__(
        self, url: str, *, token: str | None = None, connect_timeout_s: float = 5.0, reply_bytes: int = 8 << 20
    ) -> None:
        self.url = url.rstrip("/")
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE)
        self._connect_timeout_s = connect_timeout_s
        self._reply_bytes = reply_bytes

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Tools]:
        """See `Toolbox.session`.

        Raises:
            ToolServerError: on entering: it cannot be reached, refuses the token, or is no tool server.
            MissingExtraError: httpx is not installed.
        """
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        async with Link.to(
            self.url, headers=headers, connect_timeout_s=self._connect_timeout_s, reply_bytes=self._reply_bytes
        ) as link:
            listed = await link.ask("GET", "/tools", ToolList, timeout_s=0.0)
            tools = _Remote(link, listed, secrets.token_hex(16))
            try:
                yield tools
            finally:
                await tools.forget()


class _Remote:
    """The tools of one episode."""

    def __init__(self, link: Link, listed: ToolList, session: str) -> None:
        self._link, self._session, self._instance = link, session, listed.instance
        self._called = False
        self.specs = tuple(
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in listed.tools
        )

    async def call(self, name: str, arguments: Mapping[str, Any], *, timeout_s: float) -> str:
        """See `Tools.call`."""
        names = [spec.name for spec in self.specs]
        if name not in names:
            raise ToolError(f"no tool {name!r}; there are: {', '.join(names) or 'none'}")
        self._called = True
        body = {"name": name, "arguments": dict(arguments), "session": self._session, "timeout_s": timeout_s}
        if self._instance:
            body["instance"] = self._instance
        reply = await self._link.ask("POST", "/call", CallReply, body=body, timeout_s=timeout_s)
        if reply.is_error:
            raise ToolError(reply.text)
        return reply.text

    async def forget(self) -> None:
        """Tell the server that the episode is over; one that has gone has forgotten it."""
        if self._called:
            with contextlib.suppress(ToolServerError):
                await self._link.send("DELETE", f"/sessions/{self._session}", timeout_s=0.0)
