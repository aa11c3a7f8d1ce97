"""Python as a service: a session for every episode, in-process and over HTTP."""

import asyncio

import httpx
import pytest
from tests.tool_servers.scripted import Scripted

from agar.errors import SandboxError
from agar.sandbox.config import SandboxSpec
from agar.sandbox.fake import FakeSandbox
from agar.sandbox.kernel.cell import Cell
from agar.sandbox.kernel.config import KernelConfig
from agar.tool_servers.base import NO_SESSION, Session
from agar.tool_servers.client import ToolClient
from agar.tool_servers.config import ServerConfig
from agar.tool_servers.python import Python, PythonConfig
from agar.tool_servers.server import ToolServer

sandboxed = pytest.mark.sandbox
A, B = Session("a"), Session("b")


@pytest.fixture
async def python():
    async with Python(PythonConfig(kernel=KernelConfig(cell_timeout_s=20))) as service:
        yield service


@sandboxed
async def test_every_episode_has_variables_of_its_own(python):
    async with python.session() as one, python.session() as two:
        assert await one.call("python", {"code": "x = 3"}, timeout_s=20) == "(no output)"
        assert await one.call("python", {"code": "print(x)\nx + 1"}, timeout_s=20) == "3\n4"
        assert "NameError" in await two.call("python", {"code": "x"}, timeout_s=20)
        assert python.metrics() == {"python_sessions": 2.0, "python_cells_ok": 2.0, "python_cells_error": 1.0}
    assert python.metrics()["python_sessions"] == 0.0


@sandboxed
async def test_a_call_without_a_session_leaves_nothing(python):
    assert await python.call("python", {"code": "x = 3; x"}, session=NO_SESSION, timeout_s=20) == "3"
    assert python.metrics()["python_sessions"] == 0.0
    assert "NameError" in await python.call("python", {"code": "x"}, session=NO_SESSION, timeout_s=20)


@sandboxed
async def test_the_callers_deadline_interrupts_the_cell_and_keeps_the_variables(python):
    await python.call("python", {"code": "x = 3"}, session=A, timeout_s=20)
    text = await python.call("python", {"code": "while True: pass"}, session=A, timeout_s=0.3)
    assert text.endswith("KeyboardInterrupt\n[The cell was ended after 0.3 s.]")
    assert await python.call("python", {"code": "x"}, session=A, timeout_s=20) == "3"


@sandboxed
async def test_an_idle_interpreter_is_ended_and_the_next_cell_is_told():
    async with Python(PythonConfig(idle_s=0.2)) as python:
        await python.call("python", {"code": "x = 3"}, session=A, timeout_s=20)
        for _ in range(500):
            if not python.metrics()["python_sessions"]:
                break
            await asyncio.sleep(0.02)
        text = await python.call("python", {"code": "1"}, session=A, timeout_s=20)
        assert text == "1\n[Nobody used the interpreter for 0.2 s: this is a new one, without variables.]"
        assert await python.call("python", {"code": "2"}, session=A, timeout_s=20) == "2"


@sandboxed
async def test_cells_over_http_show_all_that_they_show_and_can_be_interrupted():
    async with (
        ToolServer(Python(PythonConfig(kernel=KernelConfig(cell_timeout_s=30))), ServerConfig(port=0)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as http,
    ):
        rich = "class R:\n    def __repr__(self): return 'R'\n    def _repr_html_(self): return '<b>'\nR()"
        cell = (await http.post("/sessions/s/cells", json={"code": rich})).json()
        assert cell["shown"] == [{"text/plain": "R", "text/html": "<b>"}]
        assert (cell["status"], cell["output"], cell["error"], cell["notices"]) == ("ok", "", None, [])
        code = "x = 3\nwhile True: pass"
        running = asyncio.create_task(http.post("/sessions/s/cells", json={"code": code}))
        while not running.done():
            assert (await http.post("/sessions/s/interrupt")).status_code == 204
            await asyncio.wait({running}, timeout=0.1)
        assert (await running).json()["status"] == "interrupted"
        await http.post("/sessions/s/restart")
        again = (await http.post("/sessions/s/cells", json={"code": "x"})).json()
        assert "NameError" in again["error"]
        assert (await http.post("/sessions/none/interrupt")).status_code == 204
        async with ToolClient(server.url).session() as tools:
            assert await tools.call("python", {"code": "6 * 7"}, timeout_s=20) == "42"


class Broken(Python):
    """Its sandboxes do not start."""

    def make_sandbox(self):
        def dead(call):
            raise SandboxError("on fire")

        return FakeSandbox(SandboxSpec(backend="fake"), talk=dead)


async def test_a_sandbox_that_fails_is_infrastructure_and_leaves_no_session():
    async with Broken() as python:
        with pytest.raises(SandboxError, match="on fire"):
            await python.run("1", session=A)
        assert python.metrics()["python_sessions"] == 0.0


async def test_more_interpreters_than_may_be_are_infrastructure():
    async with Broken(PythonConfig(sessions=1)) as python:
        python._of(A)
        with pytest.raises(SandboxError, match="1 interpreters run, as many as may be"):
            await python.run("1", session=B)


async def test_a_cell_may_say_half_a_surrogate_pair():
    python, half = Scripted(), "\ud800"
    python.cell = Cell(
        status="error", output=half, shown=({half: half, "image/png": None},), error=f"ValueError: {half}"
    )
    python.go.set()
    async with (
        ToolServer(python, ServerConfig(port=0)) as server,
        httpx.AsyncClient(base_url=server.url) as http,
    ):
        cell = (await http.post("/sessions/s/cells", json={"code": ""})).json()
        said = (await http.post("/call", json={"name": "python", "arguments": {"code": ""}})).json()
    assert (cell["output"], cell["shown"], cell["error"]) == ("?", [{"?": "?", "image/png": None}], "ValueError: ?")
    assert said["text"] == "?\n [?, image/png]\nValueError: ?"
    assert await python.call("python", {"code": ""}, timeout_s=20) == said["text"]


@sandboxed
async def test_an_interpreter_that_raises_half_a_surrogate_pair_is_answered_for(python):
    async with ToolServer(python, ServerConfig(port=0)) as server, httpx.AsyncClient(base_url=server.url) as http:
        cell = await http.post("/sessions/s/cells", json={"code": "raise ValueError(chr(0xd800))"}, timeout=60)
    assert cell.status_code == 200
    assert "ValueError: ?" in cell.json()["error"]


async def test_cells_beyond_the_bound_are_told_to_come_again_and_those_that_run_can_be_ended():
    python = Scripted()
    config = ServerConfig(port=0, calls_in_flight=1)
    async with ToolServer(python, config) as server, httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        running = asyncio.create_task(http.post("/sessions/a/cells", json={"code": "1"}))
        await asyncio.wait_for(python.began.wait(), 30)
        for path in ("/sessions/b/cells", "/sessions/a/restart"):
            assert (await http.post(path, json={"code": "2"})).status_code == 429
        assert (await http.post("/call", json={"name": "python", "arguments": {"code": "3"}})).status_code == 429
        assert len(python.sandboxes) == 1
        for answer in (
            await http.get("/tools"),
            await http.get("/metrics"),
            await http.post("/sessions/a/interrupt"),
            await http.delete("/sessions/b"),
        ):
            assert answer.is_success
        python.go.set()
        assert (await running).json()["output"] == "1"
        assert (await http.post("/sessions/a/cells", json={"code": "2"})).json()["output"] == "2"


async def test_all_interpreters_are_ended_though_some_do_not_go():
    python = Scripted()
    python.go.set()
    for name in "abcd":
        await python.run("1", session=Session(name))
    python.refuse.update({1, 2})
    with pytest.raises(SandboxError, match="sandbox 1 does not go"):
        await python.close()
    assert [sandbox.closed for sandbox in python.sandboxes] == [True] * 4
    assert python.metrics()["python_sessions"] == 0.0
    await python.close()


async def test_cells_that_run_side_by_side_after_a_pause_are_both_told():
    async with Scripted() as python:
        python.go.set()
        await python.run("0", session=A)
        python._expire(A, python._held[A])
        python.go.clear()
        cells = [asyncio.create_task(python.run(code, session=A)) for code in "12"]
        await asyncio.sleep(0)  # both have begun
        python.go.set()
        for code, cell in zip("12", await asyncio.gather(*cells), strict=True):
            assert cell.output == code
            assert "this is a new one, without variables" in cell.notices[0]
        assert (await python.run("3", session=A)).notices == ()


async def test_a_server_ends_the_interpreters_though_its_listener_does_not_end(monkeypatch):
    python = Scripted()
    python.go.set()
    server = ToolServer(python, ServerConfig(port=0))
    stop = server._listener.stop

    async def fails():
        await stop()
        raise OSError("no end")

    monkeypatch.setattr(server._listener, "stop", fails)
    with pytest.raises(OSError, match="no end"):
        async with server:
            await python.run("1", session=A)
    assert [sandbox.closed for sandbox in python.sandboxes] == [True]
