"""The gateway's HTTP surface: routes, keys, errors in OpenAI's shape."""

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from agar.errors import AgarError, DeadlineError, EngineAborted, EngineError, LedgerError, SessionClosedError
from agar.rollout.gateway.call import BadRequest
from agar.rollout.gateway.chat_completions import ToolCache, read_request, write_reply
from agar.rollout.gateway.session import GatewaySession

logger = logging.getLogger(__name__)

_JSON = "application/json"
_RETRY_AFTER_S = "1"


def build_app(sessions: Mapping[str, GatewaySession], *, body_bytes: int) -> Starlette:
    """The application over the open sessions.

    Args:
        sessions: open sessions by key; the caller adds and removes them.
        body_bytes: the largest request body.
    """
    endpoints = _Endpoints(sessions, body_bytes)
    routes = []
    for prefix in ("", "/s/{session}"):
        routes.append(Route(f"{prefix}/v1/chat/completions", endpoints.chat_completions, methods=["POST"]))
        routes.append(Route(f"{prefix}/v1/models", endpoints.models, methods=["GET"]))
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})  # type: ignore[dict-item]


class _Endpoints:
    def __init__(self, sessions: Mapping[str, GatewaySession], body_bytes: int) -> None:
        self._sessions = sessions
        self._body_bytes = body_bytes
        self._tools = ToolCache()

    async def chat_completions(self, request: Request) -> Response:
        session = self._session(request)
        if session is None:
            return _unknown_key()
        try:
            call = read_request(await self._body(request), self._tools, session.messages)
            reply = await session.call(call)
            return Response(write_reply(reply, call.model or session.policy, session.messages), media_type=_JSON)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return _failure(error)

    async def models(self, request: Request) -> Response:
        session = self._session(request)
        if session is None:
            return _unknown_key()
        row = {"id": session.policy, "object": "model", "created": 0, "owned_by": "agar"}
        return Response(orjson.dumps({"object": "list", "data": [row]}), media_type=_JSON)

    def _session(self, request: Request) -> GatewaySession | None:
        """The session named in the path, else by the API key."""
        key = request.path_params.get("session")
        if key is None:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer":
                return None
        return self._sessions.get(key.strip())

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._body_bytes:
            raise self._too_large()
        pieces, size = [], 0
        async for piece in request.stream():
            size += len(piece)
            if size > self._body_bytes:
                raise self._too_large()
            pieces.append(piece)
        return b"".join(pieces)

    def _too_large(self) -> BadRequest:
        return BadRequest(f"the body is larger than {self._body_bytes} bytes", code="request_too_large")


def _failure(error: Exception) -> Response:
    """An error as a status and a body that OpenAI's clients understand; they repeat 5xx, not 4xx."""
    if isinstance(error, BadRequest):
        status = 413 if error.code == "request_too_large" else 400
        return _error(status, str(error), "invalid_request_error", error.code, error.param)
    if isinstance(error, SessionClosedError):
        return _error(401, str(error), "invalid_request_error", "session_sealed")
    if isinstance(error, LedgerError):
        return _error(400, str(error), "invalid_request_error", "cannot_record")
    if isinstance(error, RecursionError):
        return _error(400, "the request is nested too deeply", "invalid_request_error", "invalid_value")
    if isinstance(error, EngineAborted):
        return _error(503, str(error), "server_error", "engine_aborted", retry=True)
    if isinstance(error, DeadlineError):
        return _error(504, str(error), "server_error", "deadline")
    if isinstance(error, EngineError):
        return _error(502, str(error), "server_error", "engine_error")
    logger.error("a model call failed", exc_info=error)
    detail = str(error) if isinstance(error, AgarError) else f"{type(error).__name__}: see the gateway's log"
    return _error(500, detail, "server_error", "internal_error")


def _unknown_key() -> Response:
    return _error(
        401, "no open session has this key: it was sealed, or never opened", "invalid_request_error", "invalid_api_key"
    )


async def _http_error(request: Request, error: HTTPException) -> Response:
    text = f"{request.method} {_shown(request)} is not served here: POST /v1/chat/completions, GET /v1/models"
    return _error(error.status_code, text, "invalid_request_error", "not_found")


def _shown(request: Request) -> str:
    """The path without a session key in it."""
    parts = request.url.path.split("/")
    return "/".join("..." if parts[:2] == ["", "s"] and i == 2 else part for i, part in enumerate(parts))


def _error(
    status: int, message: str, type: str, code: str, param: str | None = None, *, retry: bool = False
) -> Response:
    body: dict[str, Any] = {"error": {"message": message, "type": type, "param": param, "code": code}}
    headers = {"retry-after": _RETRY_AFTER_S} if retry else None
    return Response(orjson.dumps(body), status_code=status, media_type=_JSON, headers=headers)
