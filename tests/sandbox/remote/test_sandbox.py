"""The remote backend against a real server, over bubblewrap and over nothing."""

import pytest

from agar.errors import ConfigError, SandboxError, ToolError
from agar.sandbox import SandboxSpec, create
from agar.sandbox.checker import CHECKS, check_sandbox
from agar.sandbox.remote.config import SandboxServerConfig
from agar.sandbox.remote.server import SandboxServer

BY_NAME = {check.name: check for check in CHECKS}


@pytest.fixture
async def over_the_fake():
    config = SandboxServerConfig(port=0, spec=SandboxSpec(backend="fake"))
    async with SandboxServer(config) as server:
        yield server


@pytest.mark.sandbox
@pytest.mark.parametrize("name", BY_NAME)
async def test_bubblewrap_behind_a_server_conforms(name):
    spec = SandboxSpec(timeout_s=60.0, memory_mib=256)
    async with SandboxServer(SandboxServerConfig(port=0, spec=spec)) as server:
        remote = SandboxSpec(backend="remote", server=server.url, timeout_s=10.0)
        report = await check_sandbox(create, spec=remote, checks=[BY_NAME[name]])
        assert len(server.shelf) == 0, "what the check made is gone"
    assert report.failed == {}
    assert not report.refused or BY_NAME[name].optional


async def test_the_fake_behind_a_server_conforms(over_the_fake):
    remote = SandboxSpec(backend="remote", server=over_the_fake.url)
    report = await check_sandbox(create, spec=remote, isolates=False)
    assert report.failed == {}


async def test_errors_keep_their_kinds_and_words(over_the_fake):
    async with create(SandboxSpec(backend="remote", server=over_the_fake.url)) as sandbox:
        with pytest.raises(ToolError, match="No such file"):
            await sandbox.read("nothing")
        with pytest.raises(ToolError, match="lies outside"):
            await sandbox.read("/etc/passwd")
        await over_the_fake.shelf.remove(sandbox._name)
        with pytest.raises(SandboxError, match="no such sandbox"):
            await sandbox.exec("true")


async def test_a_name_that_is_no_text_is_the_agents_mistake(over_the_fake, tmp_path):
    async with create(SandboxSpec(backend="remote", server=over_the_fake.url)) as sandbox:
        for work in (
            sandbox.read("caf\udce9"),
            sandbox.write("caf\udce9", b"x"),
            sandbox.get("caf\udce9", tmp_path),
            sandbox.put(tmp_path, "caf\udce9"),
        ):
            with pytest.raises(ToolError, match=r"caf.*udce9.*is no text"):
                await work
        assert (await sandbox.exec("echo there")).stdout == "there\n"
    spec = SandboxSpec(backend="remote", server=over_the_fake.url)
    spec = spec.model_copy(update={"timeout_s": float("inf")})  # a copy is not validated
    with pytest.raises(ConfigError, match="cannot be sent as JSON"):
        await create(spec).exec("true")


async def test_a_wrong_token_and_a_dead_server_are_named(monkeypatch, unused_tcp_port):
    monkeypatch.setenv("AGAR_SANDBOX_TOKEN", "the-token-of-the-server")
    async with SandboxServer(SandboxServerConfig(port=0, spec=SandboxSpec(backend="fake"))) as server:
        monkeypatch.setenv("AGAR_SANDBOX_TOKEN", "another-token-altogether")
        with pytest.raises(SandboxError, match=r"401.*AGAR_SANDBOX_TOKEN"):
            await create(SandboxSpec(backend="remote", server=server.url)).exec("true")
    dead = create(SandboxSpec(backend="remote", server=f"http://127.0.0.1:{unused_tcp_port}"))
    with pytest.raises(SandboxError, match="is it running"):
        await dead.exec("true")


async def test_closing_one_that_was_never_used_asks_for_nothing(unused_tcp_port):
    await create(SandboxSpec(backend="remote", server=f"http://127.0.0.1:{unused_tcp_port}")).close()


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(backend="remote"),
        SandboxSpec(backend="remote", server="host:8600"),
        SandboxSpec(backend="remote", server="http://x", mounts={"/x": "/etc"}),
        SandboxSpec(backend="remote", server="http://x", workspace="/etc"),
    ],
)
def test_what_a_server_elsewhere_cannot_do_is_refused_before_it_is_asked(spec):
    with pytest.raises(ConfigError):
        create(spec)
