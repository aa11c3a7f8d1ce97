"""The gateway's HTTP surface: routes and keys."""

from collections.abc import Mapping

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agar.rollout.gateway.anthropic_messages import MESSAGES, read_conversation
from agar.rollout.gateway.anthropic_replies import write_models
from agar.rollout.gateway.call import BadRequest
from agar.rollout.gateway.chat_completions import CHAT_COMPLETIONS
from agar.rollout.gateway.dialect import Dialect
from agar.rollout.gateway.failures import UNKNOWN_KEY, Failure, failure_of
from agar.rollout.gateway.openapi import describe
from agar.rollout.gateway.responses import RESPONSES
from agar.rollout.gateway.responses_references import forget_response, response_of
from agar.rollout.gateway.session import GatewaySession
from agar.rollout.gateway.streaming import stream_reply
from agar.rollout.gateway.translation import ToolCache
from agar.serving.deadlines import Deadlines

_JSON = "application/json"
_JSON_HEAD = (b"content-type", _JSON.encode())
_RETRY_AFTER_S = "1"
_RESPONSE = "/v1/responses/{response}"
_Headers = Mapping[bytes, bytes]
_DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": CHAT_COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
}


def build_app(
    sessions: Mapping[str, GatewaySession], *, body_bytes: int, body_timeout_s: float, ping_s: float
) -> ASGIApp:
    """The application over the open sessions.

    Args:
        sessions: open sessions by key; the caller adds and removes them.
        body_bytes: the largest request body.
        body_timeout_s: how long a body may take to arrive.
        ping_s: how long a stream may be silent.
    """
    endpoints = _Endpoints(sessions, body_bytes, body_timeout_s)
    replies = {path: _Replies(endpoints, dialect, ping_s) for path, dialect in _DIALECTS.items()}
    routes = []
    for prefix in ("", "/s/{session}"):
        for path, answer in replies.items():
            routes.append(Route(f"{prefix}{path}", answer, methods=["POST"]))
        routes.append(Route(f"{prefix}/v1/messages/count_tokens", endpoints.count_tokens, methods=["POST"]))
        routes.append(Route(f"{prefix}{_RESPONSE}", endpoints.response, methods=["GET", "DELETE"]))
        routes.append(Route(f"{prefix}/v1/models", endpoints.models, methods=["GET"]))
    routes.append(Route("/openapi.json", endpoints.openapi, methods=["GET"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})  # type: ignore[dict-item]

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        """Nearly all requests come by a few paths: those are looked up, the others searched for among the routes."""
        answer = replies.get(scope["path"]) if scope["method"] == "POST" else None
        await (answer or app)(scope, receive, send)

    return front


class _Endpoints:
    def __init__(self, sessions: Mapping[str, GatewaySession], body_bytes: int, body_timeout_s: float) -> None:
        self._sessions = sessions
        self._body_bytes, self._body_timeout_s = body_bytes, body_timeout_s
        self._body_deadlines = Deadlines(body_timeout_s)
        self.tools = ToolCache()
        self._openapi: bytes | None = None

    async def count_tokens(self, request: Request) -> Response:
        """The length of a prompt; nothing is recorded."""
        session = self.session(request.scope, _headers(request.scope))
        if session is None:
            return _failed(MESSAGES, UNKNOWN_KEY)
        try:
            with session.counting():
                body = await self.body(_headers(request.scope), request.receive)
                call = read_conversation(body, self.tools, session.messages)
                counted = session.count(call)
            return Response(orjson.dumps({"input_tokens": counted}), media_type=_JSON)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return _failed(MESSAGES, failure_of(error))

    async def response(self, request: Request) -> Response:
        """A response that the session stored, or its deletion."""
        session = self.session(request.scope, _headers(request.scope))
        if session is None:
            return _failed(RESPONSES, UNKNOWN_KEY)
        try:
            for name in request.query_params:
                raise BadRequest(f"{name} is not served here: leave it out", name)
            id = request.path_params["response"]
            if request.method == "DELETE":
                return Response(orjson.dumps(forget_response(id, session.messages)), media_type=_JSON)
            return Response(response_of(id, session.messages), media_type=_JSON)
        except BadRequest as error:
            return _failed(RESPONSES, failure_of(error))

    async def models(self, request: Request) -> Response:
        """The one model that a session has."""
        session = self.session(request.scope, _headers(request.scope))
        if session is None:
            return _failed(_dialect_of(request), UNKNOWN_KEY)
        if _dialect_of(request) is MESSAGES:
            return Response(orjson.dumps(write_models([session.policy])), media_type=_JSON)
        row = {"id": session.policy, "object": "model", "created": 0, "owned_by": "agar"}
        return Response(orjson.dumps({"object": "list", "data": [row]}), media_type=_JSON)

    async def openapi(self, request: Request) -> Response:
        """What is served here; needs no key."""
        del request
        if self._openapi is None:
            self._openapi = orjson.dumps(describe())
        return Response(self._openapi, media_type=_JSON)

    def session(self, scope: Scope, headers: _Headers) -> GatewaySession | None:
        """The session named in the path, else by the API key."""
        key = scope.get("path_params", {}).get("session")
        if key is None:
            scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            if scheme.lower() != "bearer":
                key = headers.get(b"x-api-key", b"").decode("latin-1")
        return self._sessions.get(key.strip())

    async def body(self, headers: _Headers, receive: Receive) -> bytes:
        """The body of a request, if it is no larger and no slower than it may be.

        Raises:
            BadRequest: it is, or it is no JSON.
            ClientDisconnect: the caller left.
        """
        kind = headers.get(b"content-type", _JSON.encode()).decode("latin-1").partition(";")[0].strip().lower()
        if kind != _JSON and not kind.endswith("+json"):
            raise BadRequest(f"the body must be {_JSON}, got {kind!r}", code="unsupported_media_type")
        declared = headers.get(b"content-length", b"").decode("latin-1")
        if declared.isdecimal() and int(declared) > self._body_bytes:
            raise self._too_large()
        pieces, size, more = [], 0, True
        try:
            with self._body_deadlines.within():
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    piece, more = message.get("body", b""), message.get("more_body", False)
                    size += len(piece)
                    if size > self._body_bytes:
                        raise self._too_large()
                    pieces.append(piece)
        except TimeoutError:
            told = f"the body did not arrive within {self._body_timeout_s:g} s, only {size} bytes of it: send it again"
            raise BadRequest(told, code="request_timeout") from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self) -> BadRequest:
        return BadRequest(f"the body is larger than {self._body_bytes} bytes", code="request_too_large")


class _Replies:
    """Answers calls in a dialect; it has an answer to every failure and needs no handlers around it."""

    def __init__(self, endpoints: _Endpoints, dialect: Dialect, ping_s: float) -> None:
        self._endpoints, self._dialect, self._ping_s = endpoints, dialect, ping_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope, receive)
        if isinstance(answer, Response):
            await answer(scope, receive, send)
            return
        head = [(b"content-length", b"%d" % len(answer)), _JSON_HEAD]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, scope: Scope, receive: Receive) -> Response | bytes:
        """The whole reply, or what else there is to answer."""
        dialect, endpoints, headers = self._dialect, self._endpoints, _headers(scope)
        session = endpoints.session(scope, headers)
        if session is None:
            return _failed(dialect, UNKNOWN_KEY)
        try:
            call = dialect.read(await endpoints.body(headers, receive), endpoints.tools, session.messages)
            if call.stream:
                return await stream_reply(receive, session, call, dialect, ping_s=self._ping_s)
            reply = await session.call(call, stays=True)  # the server cancels no task whose client has left
            return dialect.write(reply, call.model or session.policy, session.messages)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return _failed(dialect, failure_of(error))


def _headers(scope: Scope) -> _Headers:
    """The headers by name; of several with one name, the first."""
    return dict(reversed(scope["headers"]))


async def _http_error(request: Request, error: HTTPException) -> Response:
    served = ", ".join(
        [
            *(f"POST {path}" for path in _DIALECTS),
            "POST /v1/messages/count_tokens",
            f"GET {_RESPONSE}",
            "GET /v1/models",
        ]
    )
    text = f"{request.method} {_shown(request)} is not served here: {served}"
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    reply = _failed(_dialect_of(request), Failure(status=error.status_code, message=text, code=code))
    reply.headers.update(error.headers or {})  # which methods are allowed
    return reply


def _dialect_of(request: Request) -> Dialect:
    """The dialect of a request that no dialect's own path serves: Anthropic's clients name their version."""
    anthropic = "anthropic-version" in request.headers or "/v1/messages" in request.url.path
    return MESSAGES if anthropic else CHAT_COMPLETIONS


def _shown(request: Request) -> str:
    """The path without a session key in it."""
    parts = request.url.path.split("/")
    return "/".join("..." if parts[:2] == ["", "s"] and i == 2 else part for i, part in enumerate(parts))


def _failed(dialect: Dialect, failure: Failure) -> Response:
    headers = {"retry-after": _RETRY_AFTER_S} if failure.retry else {}
    if failure.status in (401, 408):
        headers["connection"] = "close"  # a stranger keeps none; the rest of a late body would be in the way
    body = orjson.dumps(dialect.error(failure))
    return Response(body, status_code=failure.status, media_type=_JSON, headers=headers)
