"""A double of E2B's service: its REST interface and its machines' agent, over bubblewrap sandboxes.

It speaks the protocol as its public descriptions say; it has not been compared with the service.
"""

import base64
import json
import struct

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agar.errors import ToolError
from agar.sandbox import SandboxSpec, create
from agar.serving.listener import Listener

KEY, TOKEN = "e2b_key", "token-of-the-machine"


class Service:
    """What it has been asked for, and its machines."""

    def __init__(self) -> None:
        self.made: list[dict] = []
        self.machines = {}
        self.running = {}
        self.deleted: list[str] = []
        self.keeps = False
        self.hangs_up = False
        self.app = Starlette(
            routes=[
                Route("/sandboxes", self.make, methods=["POST"]),
                Route("/sandboxes/{name}", self.machine, methods=["GET", "DELETE"]),
                Route("/sandboxes/{name}/timeout", self.extend, methods=["POST"]),
                Route("/files", self.upload, methods=["POST"]),
                Route("/process.Process/Start", self.start, methods=["POST"]),
            ]
        )

    async def make(self, request):
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"code": 401, "message": "invalid key"}, status_code=401)
        self.made.append(await request.json())
        name = f"machine{len(self.made)}"
        self.machines[name] = create(SandboxSpec(output_bytes=3 << 20, memory_mib=512))
        made = {"sandboxID": name, "clientID": "x", "templateID": "base", "envdVersion": "0.5.7"}
        return JSONResponse({**made, "envdAccessToken": TOKEN, "domain": None}, status_code=201)

    async def machine(self, request):
        name = request.path_params["name"]
        if name not in self.machines:
            return JSONResponse({"code": 404, "message": "not found"}, status_code=404)
        if request.method == "GET":
            return JSONResponse({"sandboxID": name})
        self.deleted.append(name)
        if not self.keeps:
            await self.machines.pop(name).close()
        return Response(status_code=204)

    async def extend(self, request):
        return Response(status_code=204)

    def of(self, request):
        assert request.headers["x-access-token"] == TOKEN
        user = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        return self.machines[request.headers["e2b-sandbox-id"]], user.removesuffix(":")

    async def upload(self, request):
        machine, user = self.of(request)
        assert request.query_params["username"] == user == "user"
        form = await request.body()  # one part: between the first blank line and the boundary
        boundary = b"--" + request.headers["content-type"].split("boundary=")[1].encode()
        data = form.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n" + boundary, 1)[0]
        try:
            await machine.write(request.query_params["path"], data)
        except ToolError as error:
            return JSONResponse({"code": 507, "message": str(error)}, status_code=507)
        return JSONResponse([{"path": request.query_params["path"], "name": "x", "type": "file"}])

    async def start(self, request):
        machine, user = self.of(request)
        body = await request.body()
        flags, size = struct.unpack(">BI", body[:5])
        assert (flags, size) == (0, len(body) - 5)
        assert request.headers["content-type"] == "application/connect+json"
        process = json.loads(body[5:])["process"]
        return StreamingResponse(self.run(machine, user, process), media_type="application/connect+json")

    async def run(self, machine, user, process):
        words = [process["cmd"], *process["args"]]
        yield envelope({"event": {"start": {"pid": 7}}})
        if user == "root":
            assert "mkdir -p /work" in words[-1]
            yield envelope({"event": {"end": {"exited": True, "status": "exit status 0"}}})
            yield envelope({}, flags=2)
            return
        if any(word.startswith("kill -9 -1") for word in words):
            for name in list(self.running):
                await self.running.pop(name).close()
        running = self.running[id(process)] = await machine.start(words, env=process["envs"], timeout_s=100.0, cwd="/")
        yield envelope({"event": {"keepalive": {}}})
        while data := await running.read():
            yield envelope({"event": {"data": {"stdout": base64.b64encode(data).decode()}}})
        result = await running.close()
        self.running.pop(id(process), None)
        if result.stderr:
            yield envelope({"event": {"data": {"stderr": base64.b64encode(result.stderr.encode()).decode()}}})
        if self.hangs_up:
            return
        end = {"exited": True, "status": f"exit status {result.code}"}
        yield envelope({"event": {"end": end | ({"exitCode": result.code} if result.code else {})}})
        yield envelope({}, flags=2)


def envelope(message, *, flags=0):
    data = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


@pytest.fixture
async def service(monkeypatch):
    """The double, listening; and its address."""
    monkeypatch.setenv("E2B_API_KEY", KEY)
    double = Service()
    listener = Listener(double.app, name="e2b", host="127.0.0.1", port=0, shutdown_timeout_s=1.0, head_timeout_s=20.0)
    await listener.start()
    double.url = f"http://127.0.0.1:{listener.port}"
    yield double
    await listener.stop()
    for machine in double.machines.values():
        await machine.close()
