"""A service's HTTP surface: tools, sessions, health, metrics, OpenAPI."""

import secrets
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.routing import Route

from agar.errors import AgarError, ToolError, ToolServerError
from agar.serving.guard import Application, Guard, Receive, Scope, Send
from agar.tool_servers.base import Session
from agar.tool_servers.config import ServerConfig
from agar.tool_servers.meter import Meter
from agar.tool_servers.room import Room
from agar.tool_servers.service import CONTROL, Service
from agar.tool_servers.text import sendable
from agar.tool_servers.wire import CallReply, CallRequest, Health, Problem, ToolDescription, ToolList


def build_app(service: Service[Any], config: ServerConfig, *, mcp: Application | None = None) -> Application:
    """The application over an open service; the caller opens and closes it.

    Args:
        service: what is served.
        config: the token and the bounds.
        mcp: what answers at `/mcp`, if anything.
    """
    app = FastAPI(
        title=f"agar tool server: {type(service).__name__}",
        version=version("agar"),
        description=(type(service).__doc__ or "").strip(),
        docs_url=None,  # its pages load programs from other people's servers
        redoc_url=None,
    )
    meter = Meter(service.metrics)

    @app.get("/health", tags=["server"])
    async def health() -> Health:
        """Whether the server answers; needs no token."""
        return Health(service=type(service).__name__)

    room = Room(config.calls_in_flight, meter)

    async def with_room(request: Request) -> AsyncIterator[None]:
        route = request.scope["route"]
        if CONTROL in route.tags:
            yield
        else:
            async with room.place(route.path):
                yield

    # The guard has already checked the token: the first dependency only says so in the OpenAPI document.
    guarded = APIRouter(
        dependencies=[Depends(HTTPBearer(auto_error=False)), Depends(with_room, scope="function")],
        responses={429: {"model": Problem}, 503: {"model": Problem}},
    )
    guarded.include_router(_tool_routes(service, config, meter))
    if (more := service.routes()) is not None:
        guarded.include_router(more)
    app.include_router(guarded)
    if mcp is not None:
        app.router.routes.append(Route("/mcp", endpoint=_Mounted(mcp, room, patience_s=config.call_timeout_s)))
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(Exception, _failed)
    app.add_exception_handler(AgarError, _failed)
    return Guard(app, token=config.token(), body_bytes=config.body_bytes, body_timeout_s=config.body_timeout_s)


class _Mounted:
    """An application as a route's endpoint: Starlette takes an instance for one, and a function for a handler.

    Only what is posted starts work; a GET is a stream that stays open, and a DELETE an end. Clients of MCP do not ask
    again when they are told to, so theirs waits for room.
    """

    def __init__(self, app: Application, room: Room, *, patience_s: float) -> None:
        self._app, self._room, self._patience_s = app, room, patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["method"] == "POST":
            async with self._room.place(scope["path"], patience_s=self._patience_s):
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _tool_routes(service: Service[Any], config: ServerConfig, meter: Meter) -> APIRouter:
    router = APIRouter(tags=["tools"])
    known = {spec.name for spec in service.specs}
    instance = secrets.token_hex(8)

    @router.get("/tools", tags=[CONTROL])
    async def tools() -> ToolList:
        """What there is to call."""
        return ToolList(
            tools=[
                ToolDescription(name=spec.name, description=spec.description, parameters=dict(spec.parameters))
                for spec in service.specs
            ],
            instance=instance,
        )

    @router.post("/call")
    async def call(request: CallRequest) -> CallReply:
        """Call a tool. What is wrong with the call is in the reply; a status above 400 is never the agent's fault."""
        label = request.name if request.name in known else "unknown"  # strangers must not make labels without end
        limit_s = min(request.timeout_s or config.call_timeout_s, config.call_timeout_s)
        with meter.call(label) as ended:
            try:
                if request.instance not in ("", instance) and service.keeps(request.name):
                    raise ToolServerError("this server was started later than the episode: what it kept for it is gone")
                text = await service.call(
                    request.name, request.arguments, session=Session(request.session), timeout_s=limit_s
                )
            except ToolError as error:
                ended("refused")
                return CallReply(text=str(error), is_error=True)
            except Exception:
                ended("failed")
                raise
            ended("ok")
            return CallReply(text=text)

    @router.delete("/sessions/{session}", status_code=204, tags=[CONTROL])
    async def forget(session: str) -> None:
        """Let go of what is kept for an episode; one that is not known is no mistake."""
        await service.forget(Session(session))

    @router.get("/metrics", tags=["server", CONTROL], response_class=Response)
    async def metrics() -> Response:
        """Numbers in Prometheus' text format."""
        return Response(meter.text(), media_type=meter.content_type)

    return router


async def _misread(request: Any, error: Exception) -> JSONResponse:
    """A body of another form, told without a copy of it: half a surrogate pair in there would break the reply."""
    assert isinstance(error, RequestValidationError), "registered for it"
    said = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
    return JSONResponse({"detail": sendable(said)}, status_code=422)


async def _failed(request: Any, error: Exception) -> JSONResponse:
    """A failure inside: 503 where it is a known kind, 500 where it is a fault in the program, which uvicorn logs."""
    if isinstance(error, AgarError):
        return JSONResponse({"detail": sendable(str(error))}, status_code=503)
    return JSONResponse({"detail": f"{type(error).__name__} inside the server; its log says more"}, status_code=500)
