"""What stands before every route: the token, and bounds on what a request may send."""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
from starlette.responses import JSONResponse

from agar.serving.address import is_loopback

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_DROPPED = 16
"""Where a body that is too large is cut off, in times of what it may have."""

OPEN_PATHS = frozenset({"/health"})
"""Answered without a token, for whoever watches over the server."""


class Guard:
    """An ASGI application around another: nobody without the token, no body too large or too slow.

    Plain ASGI and not a dependency of the routes, for those read the body first.

    Args:
        app: what is guarded.
        token: what callers must send; None asks for nothing.
        body_bytes: the largest body.
        body_timeout_s: how long a body may take to arrive.
    """

    def __init__(self, app: Application, *, token: str | None, body_bytes: int, body_timeout_s: float) -> None:
        self._app, self._token = app, token
        self._body_bytes, self._body_timeout_s = body_bytes, body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._token is not None and scope["path"] not in OPEN_PATHS and not self._known(headers):
            await _refuse(401, "send the server's token as `Authorization: Bearer TOKEN`")(scope, receive, send)
            return
        if self._token is None and not _is_for_us(scope, headers):
            said = "this server has no token, and answers to localhost by that name only"
            await _refuse(403, said)(scope, receive, send)
            return
        try:
            body = await self._body(receive)
        except TimeoutError:
            said = f"the body did not arrive within {self._body_timeout_s:g} s: send it again"
            await _refuse(408, said)(scope, receive, send)
            return
        if body is None:
            await _refuse(413, f"the body is larger than {self._body_bytes} bytes")(scope, receive, send)
            return
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)

    def _known(self, headers: dict[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and secrets.compare_digest(token.strip(), (self._token or "").encode())

    async def _body(self, receive: Receive) -> bytes | None:
        """All of it; None where it is too large."""
        pieces: list[bytes] = []
        size = 0
        with anyio.fail_after(self._body_timeout_s):
            while True:
                message = await receive()
                size += len(message.get("body", b""))
                if size <= self._body_bytes:
                    pieces.append(message.get("body", b""))
                # A client that is cut off while it sends does not read why: what is too much is read, and dropped.
                if not message.get("more_body", False) or size > _DROPPED * self._body_bytes:
                    return b"".join(pieces) if size <= self._body_bytes else None


def _is_for_us(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a request means this machine: a web page may have its own name lead here, and a browser believes it."""
    if (scope.get("server") or ("", None))[1] is None:  # the unix socket, which lies where no stranger can enter
        return True
    host = headers.get(b"host", b"").decode("latin-1")
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def _refuse(status: int, detail: str) -> JSONResponse:
    # Closed: a stranger keeps no connection, and the rest of a late body would be in the way.
    headers = {"connection": "close", **({"www-authenticate": "Bearer"} if status == 401 else {})}
    return JSONResponse({"detail": detail}, status_code=status, headers=headers)
