"""A sandbox server's HTTP surface."""

import asyncio
import io
import tempfile
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer

from agar.errors import AgarError, ConfigError, SandboxError, ToolError, UnsupportedPlatformError
from agar.sandbox.base import Process, Sandbox, Snapshot
from agar.sandbox.config import SandboxSpec
from agar.sandbox.remote.config import SandboxServerConfig
from agar.sandbox.remote.shelf import Entry, NoSuchThing, Shelf
from agar.sandbox.remote.wire import (
    ASKABLE,
    MISSING,
    CommandRequest,
    Forked,
    ForkRequest,
    Health,
    Moved,
    Problem,
    Ran,
    SandboxMade,
    SandboxRequest,
)
from agar.sandbox.trees import pack, unpack
from agar.serving.guard import Application, Guard

T = TypeVar("T")
_POLL_S = 20.0
_PROCESS_TIMEOUT_S = 3600.0  # as `Sandbox.start` has it
_AT_MOST = ("cpus", "memory_mib", "pids", "disk_mib", "files", "timeout_s", "output_bytes")
_STATUS = {ToolError: 422, ConfigError: 400, UnsupportedPlatformError: 501, SandboxError: 503}


def build_app(shelf: Shelf, config: SandboxServerConfig, make: Callable[[SandboxSpec], Sandbox]) -> Application:
    """The application over an open shelf.

    Args:
        shelf: where sandboxes are kept.
        config: the token, the bounds, what sandboxes are made of.
        make: makes one.
    """
    app = FastAPI(title="agar sandbox server", version=version("agar"), docs_url=None, redoc_url=None)

    @app.get("/health")
    async def health() -> Health:
        """Whether the server answers; needs no token."""
        return Health(backend=config.spec.backend, sandboxes=len(shelf))

    # The guard has already checked the token: the dependency only says so in the OpenAPI document.
    guarded = APIRouter(dependencies=[Depends(HTTPBearer(auto_error=False))])
    _sandbox_routes(guarded, shelf, config, make)
    _file_routes(guarded, shelf, config)
    _process_routes(guarded, shelf, config)
    app.include_router(guarded)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(AgarError, _failed)
    return Guard(app, token=config.token(), body_bytes=config.body_bytes, body_timeout_s=config.body_timeout_s)


def narrowed(spec: SandboxSpec, asked: dict[str, Any]) -> SandboxSpec:
    """What a caller gets: the server's spec with less of what was asked for.

    Args:
        spec: the server's.
        asked: settings that are to differ.

    Raises:
        ConfigError: more is asked for than the server has to give, or something that is not a caller's to set.
    """
    if not_theirs := sorted(set(asked) - ASKABLE):
        raise ConfigError(f"{', '.join(not_theirs)}: set by the server's owner, not by its callers: leave it out")
    try:
        wanted = SandboxSpec.model_validate({**spec.model_dump(), **asked})
    except ValueError as error:
        raise ConfigError(f"no sandbox can be made of that: {error}") from error
    for name in _AT_MOST:
        most, got = getattr(spec, name), getattr(wanted, name)
        if most is not None and (got is None or got > most):
            raise ConfigError(f"{name} = {got}: this server gives at most {most}")
    places = wanted.network if isinstance(wanted.network, tuple) else ()
    given = spec.network if isinstance(spec.network, tuple) else ()
    if wanted.network == "gateway" or not set(places) <= set(given):
        raise ConfigError(f"network = {wanted.network!r}: this server gives {spec.network!r}, or none")
    return wanted


def _sandbox_routes(
    router: APIRouter, shelf: Shelf, config: SandboxServerConfig, make: Callable[[SandboxSpec], Sandbox]
) -> None:
    @router.post("/sandboxes", responses={429: {"model": Problem}})
    async def create(request: SandboxRequest) -> SandboxMade:
        """Make a sandbox; it starts with its first use."""
        spec = narrowed(config.spec, request.spec)
        if len(shelf) >= config.sandboxes:
            return _full(config.sandboxes)  # type: ignore[return-value]
        return SandboxMade(id=shelf.add(make(spec)))

    @router.delete("/sandboxes/{name}", status_code=204)
    async def close(name: str) -> None:
        """Delete a sandbox and see it deleted; one that is not known is no mistake."""
        await shelf.remove(name)

    @router.post("/sandboxes/{name}/exec")
    async def execute(name: str, command: CommandRequest, request: Request) -> Ran:
        """Run a command; it is killed when the caller hangs up."""
        with shelf.use(name) as entry:
            work = entry.sandbox.exec(
                command.command,
                cwd=command.cwd,
                env=command.env,
                stdin=_given(command),
                timeout_s=_deadline(command, config.spec.timeout_s),
            )
            return Ran.of(await _while_connected(request, work))

    @router.post("/sandboxes/{name}/fork", responses={429: {"model": Problem}})
    async def fork(name: str, request: ForkRequest) -> Forked:
        """Copies of a sandbox."""
        if len(shelf) + request.count > config.sandboxes:
            return _full(config.sandboxes)  # type: ignore[return-value]
        with shelf.use(name) as entry, shelf.reserving(request.count):
            return Forked(ids=[shelf.add(copy) for copy in await entry.sandbox.fork(request.count)])


def _file_routes(router: APIRouter, shelf: Shelf, config: SandboxServerConfig) -> None:
    @router.get("/sandboxes/{name}/file", response_class=Response)
    async def read(name: str, path: str) -> Response:
        """A file's bytes."""
        with shelf.use(name) as entry:
            return Response(await entry.sandbox.read(path), media_type="application/octet-stream")

    @router.put("/sandboxes/{name}/file", status_code=204)
    async def write(name: str, path: str, request: Request) -> None:
        """Create or replace a file by the body."""
        with shelf.use(name) as entry:
            await entry.sandbox.write(path, await request.body())

    @router.get("/sandboxes/{name}/tree", response_class=Response)
    async def get(name: str, path: str) -> Response:
        """A folder as a tarball, or a file as itself; the header `agar-moved` counts what was copied."""
        with shelf.use(name) as entry, tempfile.TemporaryDirectory(prefix="agar-get-") as place:
            target = Path(place, "got")
            moved = Moved.of(await entry.sandbox.get(path, target))
            headers = {"agar-moved": moved.model_dump_json()}
            if await asyncio.to_thread(target.is_dir):
                archive = io.BytesIO()
                await asyncio.to_thread(pack, target, archive)
                return Response(archive.getvalue(), media_type="application/x-tar", headers=headers)
            data = await asyncio.to_thread(target.read_bytes)
            return Response(data, media_type="application/octet-stream", headers=headers)

    @router.put("/sandboxes/{name}/tree")
    async def put(name: str, path: str, request: Request) -> Moved:
        """Copy a tarball's folders and files in."""
        archive = await request.body()
        with shelf.use(name) as entry, tempfile.TemporaryDirectory(prefix="agar-put-") as place:
            source = Path(place, "tree")
            await asyncio.to_thread(unpack, archive, path, source, config.body_bytes, folder=True)
            return Moved.of(await entry.sandbox.put(source, path))

    @router.get("/sandboxes/{name}/snapshot", response_class=Response)
    async def snapshot(name: str) -> Response:
        """All files as a tarball; the header `agar-moved` counts them."""
        with shelf.use(name) as entry:
            taken = await entry.sandbox.snapshot()
        moved = Moved(files=taken.files, size_bytes=taken.size_bytes, skipped={})
        headers = {"agar-moved": moved.model_dump_json()}
        return Response(taken.archive, media_type="application/x-tar", headers=headers)

    @router.put("/sandboxes/{name}/snapshot", status_code=204)
    async def restore(name: str, request: Request) -> None:
        """Replace all files by a snapshot's."""
        with shelf.use(name) as entry:
            await entry.sandbox.restore(Snapshot(archive=await request.body(), files=0, size_bytes=0))


def _process_routes(router: APIRouter, shelf: Shelf, config: SandboxServerConfig) -> None:
    @router.post("/sandboxes/{name}/processes")
    async def start(name: str, request: CommandRequest) -> SandboxMade:
        """Start a command that one talks to."""
        with shelf.use(name) as entry:
            most_s = config.process_timeout_s
            asked_s = _deadline(request, most_s)
            timeout_s = min(most_s, _PROCESS_TIMEOUT_S) if asked_s is None else asked_s
            process = await entry.sandbox.start(request.command, cwd=request.cwd, env=request.env, timeout_s=timeout_s)
            number = str(len(entry.processes) + 1)
            entry.processes[number] = process
        return SandboxMade(id=number)

    @router.post("/sandboxes/{name}/processes/{number}/input", status_code=204)
    async def tell(name: str, number: str, request: Request) -> None:
        """Give it input."""
        with shelf.use(name) as entry:
            await _process(entry, number).write(await request.body())

    @router.get("/sandboxes/{name}/processes/{number}/output", response_class=Response)
    async def hear(name: str, number: str) -> Response:
        """The next bytes of its output; 204 where there are none for a while, 205 where there will be none."""
        with shelf.use(name) as entry:
            reading = asyncio.ensure_future(_process(entry, number).read())
            try:
                async with asyncio.timeout(_POLL_S):
                    data = await reading
            except TimeoutError:
                return Response(status_code=204)
            finally:
                reading.cancel()
        return Response(data, media_type="application/octet-stream") if data else Response(status_code=205)

    @router.delete("/sandboxes/{name}/processes/{number}")
    async def end(name: str, number: str) -> Ran:
        """Kill what is left of it; says how it ended."""
        with shelf.use(name) as entry:
            return Ran.of(await _process(entry, number).close())


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await something, and cancel it when the caller hangs up."""
    running = asyncio.ensure_future(work)
    hung_up = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({running, hung_up}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        hung_up.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
    if running.cancelled():
        raise SandboxError("the caller hung up, and its command was killed")
    return running.result()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _process(entry: Entry, number: str) -> Process:
    process = entry.processes.get(number)
    if process is None:
        raise NoSuchThing("there is no such process in this sandbox: start one")
    return process


def _given(request: CommandRequest) -> bytes:
    try:
        return request.given()
    except ValueError as error:
        raise ConfigError(f"stdin is no base64 ({error}): encode it") from error


def _deadline(request: CommandRequest, most_s: float) -> float | None:
    if request.timeout_s is None or request.timeout_s <= most_s:
        return request.timeout_s
    raise ConfigError(f"timeout_s = {request.timeout_s:g}: this server gives at most {most_s:g}")


def _full(limit: int) -> JSONResponse:
    said = f"there are {limit} sandboxes, as many as may be: try again when one is closed"
    problem = Problem(kind="SandboxError", detail=said)
    return JSONResponse(problem.model_dump(), status_code=429, headers={"retry-after": "5"})


async def _misread(request: Any, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError), "registered for it"
    said = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
    problem = Problem(kind="ConfigError", detail=said.encode("utf-8", "replace").decode())
    return JSONResponse(problem.model_dump(), status_code=422)


async def _failed(request: Any, error: Exception) -> JSONResponse:
    kind = next((kind for kind in _STATUS if isinstance(error, kind)), SandboxError)
    status = MISSING if isinstance(error, NoSuchThing) else _STATUS[kind]
    problem = Problem(kind=kind.__name__, detail=str(error).encode("utf-8", "replace").decode())
    return JSONResponse(problem.model_dump(), status_code=status)
