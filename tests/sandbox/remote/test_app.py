"""What a sandbox server gives to whom, over a scripted backend."""

import asyncio

import httpx
import pytest

from agar.errors import ConfigError
from agar.sandbox import SandboxSpec
from agar.sandbox.fake import FakeSandbox
from agar.sandbox.remote.app import narrowed
from agar.sandbox.remote.config import SandboxServerConfig
from agar.sandbox.remote.server import SandboxServer

TOKEN = "a-token-of-some-length"
SPEC = SandboxSpec(backend="fake", memory_mib=128, timeout_s=5.0, network=())


def test_a_caller_may_ask_for_less():
    got = narrowed(SPEC, {"memory_mib": 64, "timeout_s": 1.0, "cpus": 1.0, "env": {"A": "1"}, "user": 1234})
    assert (got.memory_mib, got.timeout_s, got.cpus, got.env, got.user) == (64, 1.0, 1.0, {"A": "1"}, 1234)
    assert got.backend == "fake"


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"memory_mib": 129}, "at most 128"),
        ({"timeout_s": 6.0}, "at most 5"),
        ({"mounts": {"/x": "/etc"}}, "not by its callers"),
        ({"workspace": "/etc"}, "not by its callers"),
        ({"backend": "docker", "engine": "/var/run/docker.sock"}, "backend, engine"),
        ({"image": "/etc/passwd", "runtime": "x"}, "image, runtime"),
        ({"network": "gateway"}, "gives \\(\\)"),
        ({"network": ["a:1"]}, "gives \\(\\)"),
        ({"user": 0}, "no sandbox can be made"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_caller_may_not_ask_for_more(asked, complaint):
    with pytest.raises(ConfigError, match=complaint):
        narrowed(SPEC, asked)


def test_of_listed_places_a_caller_may_have_some():
    spec = SandboxSpec(network=("a:1", "b:2"))
    assert narrowed(spec, {"network": ["b:2"]}).network == ("b:2",)
    assert narrowed(spec, {"network": "none"}).network == "none"
    with pytest.raises(ConfigError, match="this server gives"):
        narrowed(spec, {"network": ["b:2", "c:3"]})


def test_a_processor_limit_of_the_server_cannot_be_left_out():
    with pytest.raises(ConfigError, match="cpus"):
        narrowed(SandboxSpec(cpus=1.0), {"cpus": None})


@pytest.fixture
async def served(monkeypatch):
    """A server over scripted sandboxes, those sandboxes, and a client that has its token."""
    monkeypatch.setenv("AGAR_SANDBOX_TOKEN", TOKEN)
    made = []

    def make(spec):
        made.append(FakeSandbox(spec))
        return made[-1]

    config = SandboxServerConfig(port=0, sandboxes=2, spec=SandboxSpec(backend="fake"), idle_s=30.0)
    async with SandboxServer(config, make=make) as server:
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=20.0) as http:
            yield server, made, http


async def test_nobody_without_the_token_learns_more_than_that_it_lives(served):
    server, _, http = served
    made = (await http.post("/sandboxes", json={})).json()["id"]
    async with httpx.AsyncClient(base_url=server.url) as stranger:
        assert (await stranger.get("/health")).json() == {"status": "ok", "backend": "fake", "sandboxes": 1}
        for method, path in (
            ("POST", "/sandboxes"),
            ("GET", f"/sandboxes/{made}/file?path=x"),
            ("GET", "/openapi.json"),
        ):
            assert (await stranger.request(method, path)).status_code == 401


async def test_no_more_than_its_number_exist_and_a_closed_one_makes_room(served):
    _, made, http = served
    first, _ = [(await http.post("/sandboxes", json={})).json()["id"] for _ in range(2)]
    full = await http.post("/sandboxes", json={})
    assert (full.status_code, full.headers["retry-after"]) == (429, "5")
    assert (await http.post(f"/sandboxes/{first}/fork", json={"count": 1})).status_code == 429
    for _ in range(2):
        assert (await http.delete(f"/sandboxes/{first}")).status_code == 204
    assert made[0].closed
    assert (await http.post("/sandboxes", json={})).status_code == 200


async def test_copies_that_are_being_made_take_their_places():
    gate = asyncio.Event()

    class Slow(FakeSandbox):
        async def fork(self, count):
            await gate.wait()
            return await super().fork(count)

    config = SandboxServerConfig(port=0, sandboxes=2, spec=SandboxSpec(backend="fake"))
    async with SandboxServer(config, make=Slow) as server, httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        name = (await http.post("/sandboxes", json={})).json()["id"]
        forks = [asyncio.create_task(http.post(f"/sandboxes/{name}/fork", json={"count": 1})) for _ in range(2)]
        await asyncio.wait(forks, timeout=20, return_when=asyncio.FIRST_COMPLETED)  # one is told at once
        assert (await http.post("/sandboxes", json={})).status_code == 429
        gate.set()
        assert sorted([(await fork).status_code for fork in forks]) == [200, 429]
        assert len(server.shelf) == 2


async def test_a_name_that_is_not_known_is_said(served):
    _, _, http = served
    for method, path in (("POST", "/exec"), ("GET", "/snapshot"), ("DELETE", "/processes/1")):
        answer = await http.request(method, f"/sandboxes/nobody{path}", json={"command": "true"})
        assert answer.status_code == 404
        assert "no such sandbox" in answer.json()["detail"]


async def test_garbage_is_refused_by_name(served):
    _, _, http = served
    name = (await http.post("/sandboxes", json={})).json()["id"]
    for body in ({}, {"command": 1}, {"command": "x", "unknown": 1}, {"command": "x", "stdin": "no base64!"}):
        answer = await http.post(f"/sandboxes/{name}/exec", json=body)
        assert answer.status_code in (400, 422)
        assert answer.json()["kind"] == "ConfigError"
    answer = await http.put(f"/sandboxes/{name}/tree?path=x", content=b"no tarball")
    assert (answer.status_code, answer.json()["kind"]) == (422, "ToolError")
    assert (await http.put(f"/sandboxes/{name}/file?path=../x", content=b"x")).json()["kind"] == "ToolError"
    assert (await http.post(f"/sandboxes/{name}/exec", json={"command": "x", "timeout_s": 99})).status_code == 400


async def test_a_process_lives_no_longer_than_the_server_gives(served):
    _, _, http = served
    path = f"/sandboxes/{(await http.post('/sandboxes', json={})).json()['id']}/processes"

    async def start(timeout):
        body = f'{{"command": "cat", "timeout_s": {timeout}}}'
        return await http.post(path, content=body, headers={"content-type": "application/json"})

    for timeout in ("1e10", "86401", "Infinity", "NaN"):
        answer = await start(timeout)
        assert (answer.status_code, answer.json()["kind"]) == (400, "ConfigError"), timeout
        assert "at most 86400" in answer.json()["detail"]
    for timeout in ("86400", "null"):
        assert (await start(timeout)).status_code == 200


async def test_a_sandbox_that_nobody_uses_is_deleted(monkeypatch):
    made = []

    def make(spec):
        made.append(FakeSandbox(spec))
        return made[-1]

    config = SandboxServerConfig(port=0, spec=SandboxSpec(backend="fake"), idle_s=0.05)
    async with SandboxServer(config, make=make) as server, httpx.AsyncClient(base_url=server.url) as http:
        await http.post("/sandboxes", json={})
        async with asyncio.timeout(30):
            while not made[0].closed:  # noqa: ASYNC110  the server's own doing
                await asyncio.sleep(0.01)
        assert server.shelf.expired == 1


async def test_a_command_whose_caller_hangs_up_is_cancelled(served):
    server, made, http = served
    name = (await http.post("/sandboxes", json={})).json()["id"]
    running = asyncio.create_task(http.post(f"/sandboxes/{name}/exec", json={"command": "sleep 9"}))
    with server.shelf.use(name) as entry:
        async with asyncio.timeout(30):
            while not made[0].calls:  # noqa: ASYNC110  the server's own doing
                await asyncio.sleep(0.01)
        assert entry.calls == 2
        running.cancel()
        await asyncio.wait([running])
        async with asyncio.timeout(8):  # less than the command would take
            while entry.calls > 1:  # noqa: ASYNC110  the server's own doing
                await asyncio.sleep(0.01)


async def test_all_are_deleted_with_the_server():
    made = []

    def make(spec):
        made.append(FakeSandbox(spec))
        return made[-1]

    config = SandboxServerConfig(port=0, spec=SandboxSpec(backend="fake"))
    async with SandboxServer(config, make=make) as server, httpx.AsyncClient(base_url=server.url) as http:
        for _ in range(3):
            await http.post("/sandboxes", json={})
    assert [sandbox.closed for sandbox in made] == [True] * 3


def test_what_cannot_be_served_is_refused(monkeypatch):
    monkeypatch.delenv("AGAR_SANDBOX_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="AGAR_SANDBOX_TOKEN"):
        SandboxServer(SandboxServerConfig(host="0.0.0.0", port=0))
    for spec in (SandboxSpec(network="gateway"), SandboxSpec(backend="remote", server="http://x")):
        with pytest.raises(ConfigError, match="cannot be served"):
            SandboxServer(SandboxServerConfig(spec=spec))
