"""Tools of a server as tools of an episode: the other end of `app.py`."""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from agar.errors import MissingExtraError, ToolError, ToolServerError
from agar.tool_servers.base import Tools
from agar.tool_servers.config import TOKEN_VARIABLE
from agar.tool_servers.wire import CallReply, ToolList
from agar.types import ToolSpec

if TYPE_CHECKING:
    import httpx

_GRACE_S = 10.0
"""How much longer than a call's deadline its reply may take: the server ends the call, and says so."""
_BACKOFF_S = (0.1, 0.3, 1.0, 3.0)

Reply = TypeVar("Reply", bound=BaseModel)


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
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError("calling a tool server needs httpx: pip install 'agar[tools]'") from error
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=httpx.Timeout(None, connect=self._connect_timeout_s),
            trust_env=False,
        ) as http:  # fmt: skip
            link = _Link(http, self.url, self._reply_bytes)
            listed = await link.ask("GET", "/tools", ToolList, timeout_s=_GRACE_S)
            tools = _Remote(link, listed, secrets.token_hex(16))
            try:
                yield tools
            finally:
                await tools.forget()


class _Remote:
    """The tools of one episode."""

    def __init__(self, link: "_Link", listed: ToolList, session: str) -> None:
        self._link, self._session = link, session
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
        reply = await self._link.ask("POST", "/call", CallReply, body=body, timeout_s=timeout_s)
        if reply.is_error:
            raise ToolError(reply.text)
        return reply.text

    async def forget(self) -> None:
        """Tell the server that the episode is over; one that has gone has forgotten it."""
        if self._called:
            with contextlib.suppress(ToolServerError):
                await self._link.send("DELETE", f"/sessions/{self._session}", timeout_s=0.0)


class _Link:
    """Requests to one server, and what may go wrong with them."""

    def __init__(self, http: "httpx.AsyncClient", url: str, reply_bytes: int) -> None:
        self._http, self._url, self._reply_bytes = http, url, reply_bytes

    async def ask(
        self, method: str, path: str, kind: type[Reply], *, body: Mapping[str, Any] | None = None, timeout_s: float
    ) -> Reply:
        """Send a request and read its reply.

        Raises:
            ToolServerError: it cannot be reached, fails, or answers with something else.
            ToolError: what is sent is too large.
        """
        data = await self.send(method, path, body=body, timeout_s=timeout_s)
        try:
            return kind.model_validate_json(data)
        except ValidationError as error:
            raise ToolServerError(
                f"{self._url}{path} answered with something else than a {kind.__name__}: {_shown(data)}: is it a tool "
                "server of this version?"
            ) from error

    async def send(self, method: str, path: str, *, body: Mapping[str, Any] | None = None, timeout_s: float) -> bytes:
        """Send a request; the body of its reply.

        Raises:
            ToolServerError: it cannot be reached, does not answer in time, or answers with a failure.
            ToolError: what is sent is too large.
        """
        import httpx

        # ASCII, for half a surrogate pair has no UTF-8.
        content = json.dumps(body).encode() if body is not None else None
        try:
            async with asyncio.timeout(timeout_s + _GRACE_S):
                for wait_s in itertools.chain(_BACKOFF_S, itertools.repeat(_BACKOFF_S[-1])):
                    with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout, _Busy):
                        return await self._once(method, path, content)
                    await asyncio.sleep(wait_s)
        except TimeoutError as error:
            said = f"{self._url}{path} gave no answer within {timeout_s + _GRACE_S:g} s"
            raise ToolServerError(f"{said}: is the tool server up, and large enough?") from error
        except httpx.HTTPError as error:
            raise ToolServerError(f"{self._url}{path}: {error or type(error).__name__}") from error
        raise AssertionError("the loop has no end")

    async def _once(self, method: str, path: str, content: bytes | None) -> bytes:
        kind = {"content-type": "application/json"} if content is not None else {}
        async with self._http.stream(method, path, content=content, headers=kind) as reply:
            data = b""
            async for piece in reply.aiter_bytes():
                data += piece
                if len(data) > self._reply_bytes:
                    raise ToolServerError(f"{self._url}{path} answered with more than {self._reply_bytes} bytes")
        if reply.status_code == 429:
            raise _Busy
        if reply.status_code == 413:
            raise ToolError("the arguments are too large for the tool server: send less at a time")
        if reply.status_code == 401:
            raise ToolServerError(f"{self._url} refuses our token: set {TOKEN_VARIABLE} to the server's")
        if not reply.is_success:
            raise ToolServerError(f"{self._url}{path} answered with status {reply.status_code}: {_shown(data)}")
        return data


class _Busy(Exception):
    """The server has no room just now."""


def _shown(data: bytes) -> str:
    """The beginning of a reply, for a message."""
    return repr(data[:200].decode("utf-8", "replace"))
