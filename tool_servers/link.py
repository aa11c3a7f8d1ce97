"""Requests to one server, and what may go wrong with them."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from agar.errors import MissingExtraError, ToolError, ToolServerError, to_install
from agar.tool_servers.config import TOKEN_VARIABLE
from agar.tool_servers.urls import public

if TYPE_CHECKING:
    import httpx

GRACE_S = 10.0
"""How much longer than a call's deadline its reply may take: the server ends the call, and says so."""
_BACKOFF_S = (0.1, 0.3, 1.0, 3.0)
_AWAY = {502, 503, 504}  # what a proxy says while the server behind it is away

Reply = TypeVar("Reply", bound=BaseModel)


class Link:
    """A server that is asked over HTTP.

    A request that never reached it, or found it busy, is made again; one that may have begun is not. Nor is one
    that a proxy lost, unless it only asks (GET).

    Args:
        http: the connection.
        url: of the server, for messages.
        reply_bytes: the largest reply that is read.
        token_variable: the environment variable that holds what it asks for, for messages; None where none is.
    """

    def __init__(
        self, http: "httpx.AsyncClient", url: str, reply_bytes: int, *, token_variable: str | None = TOKEN_VARIABLE
    ) -> None:
        self._http, self._url, self._reply_bytes, self._token_variable = http, public(url), reply_bytes, token_variable

    @classmethod
    @contextlib.asynccontextmanager
    async def to(
        cls,
        url: str,
        *,
        headers: Mapping[str, str],
        connect_timeout_s: float = 5.0,
        reply_bytes: int = 8 << 20,
        token_variable: str | None = TOKEN_VARIABLE,
    ) -> "AsyncIterator[Link]":
        """A connection to a server, for as long as the context lasts.

        Args:
            url: the server, without a slash at the end.
            headers: sent with every request.
            connect_timeout_s: the longest wait for a connection.
            reply_bytes: the largest reply that is read.
            token_variable: the environment variable that holds what it asks for, for messages; None where none is.

        Raises:
            MissingExtraError: httpx is not installed.
        """
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError(f"calling a tool server needs httpx: {to_install('tools')}") from error
        timeout = httpx.Timeout(None, connect=connect_timeout_s)
        async with httpx.AsyncClient(base_url=url, headers=dict(headers), timeout=timeout, trust_env=False) as http:
            yield cls(http, url, reply_bytes, token_variable=token_variable)

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
        last = ""
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                for wait_s in itertools.chain(_BACKOFF_S, itertools.repeat(_BACKOFF_S[-1])):
                    try:
                        return await self._once(method, path, content)
                    except (httpx.ConnectError, httpx.ConnectTimeout, _Busy) as error:
                        last = f" (last: {error or type(error).__name__})"
                    await asyncio.sleep(wait_s)
        except TimeoutError as error:
            said = f"{self._url}{path} gave no answer within {timeout_s + GRACE_S:g} s{last}"
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
        if reply.status_code == 429 or (method == "GET" and reply.status_code in _AWAY):
            raise _Busy(f"status {reply.status_code}")
        if reply.status_code == 413:
            raise ToolError("the arguments are too large for the tool server: send less at a time")
        if reply.status_code in (401, 403):
            if self._token_variable is None:
                raise ToolServerError(f"{self._url} asks for a token: name the variable that holds it (token_variable)")
            raise ToolServerError(f"{self._url} refuses our token: set {self._token_variable} to the server's")
        if not reply.is_success:
            raise ToolServerError(f"{self._url}{path} answered with status {reply.status_code}: {_shown(data)}")
        return data


class _Busy(Exception):
    """The server has no room just now, or is away."""


def _shown(data: bytes) -> str:
    """The beginning of a reply, for a message."""
    return repr(data[:200].decode("utf-8", "replace"))
