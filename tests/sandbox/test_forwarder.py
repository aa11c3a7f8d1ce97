"""A sandbox with `network = "gateway"`: one port leads to one unix socket outside, and nothing else leads anywhere."""

import asyncio
import os
import socket
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from agar.errors import ConfigError, ToolError
from agar.sandbox import GATEWAY_PORT, SandboxSpec, available, create
from agar.sandbox.bubblewrap import BubblewrapSandbox
from agar.sandbox.checker import check_sandbox

pytestmark = pytest.mark.sandbox

SPEC = SandboxSpec(network="gateway", timeout_s=40.0)
CALL = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", {GATEWAY_PORT}), 20) as link:
    link.sendall(sys.argv[1].encode())
    link.shutdown(socket.SHUT_WR)
    while chunk := link.recv(65536):
        sys.stdout.write(chunk.decode())
"""


class Upper:
    """A server that answers in capitals when the caller has finished; counts its callers."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls, self.open, self.most = path, 0, 0, 0
        self.there = asyncio.Event()  # set while somebody is connected
        self.left = asyncio.Event()  # set when nobody is any more

    async def __call__(self, reader, writer):
        self.calls += 1
        self.open += 1
        self.there.set()
        self.left.clear()
        self.most = max(self.most, self.open)
        try:
            writer.write((await reader.read()).upper())
            writer.write_eof()
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            if not self.open:
                self.there.clear()
                self.left.set()
            writer.close()


@asynccontextmanager
async def upper():
    with tempfile.TemporaryDirectory(prefix="agar-test-") as folder:
        server = Upper(Path(folder) / "gateway.sock")
        async with await asyncio.start_unix_server(server, server.path):
            yield server


@pytest.fixture
async def sandbox(host):
    async with upper() as server, BubblewrapSandbox(SPEC, host=host, gateway=server.path) as sandbox:
        sandbox.server = server
        yield sandbox


async def call(sandbox, python3, text, **options):
    return await sandbox.exec([python3, "-I", "-S", "-c", CALL, text], **options)


async def test_every_command_reaches_the_gateway_and_gets_its_answer(sandbox, python3):
    for text in ("one", "two", "x" * 90_000):
        assert (await call(sandbox, python3, text)).stdout == text.upper()
    assert sandbox.server.calls == 3


async def test_commands_side_by_side_have_a_port_each(sandbox, python3):
    results = await asyncio.gather(*(call(sandbox, python3, f"number {n}") for n in range(4)))
    assert [result.stdout for result in results] == [f"NUMBER {n}" for n in range(4)]


async def test_nothing_else_can_be_reached(sandbox, python3):
    """Neither a port, an abstract socket, a socket's file nor a name server of the machine."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0agar-test-{os.getpid()}")
        abstract.listen()
        port = server.getsockname()[1]
        code = f"""
import errno, socket
def reach(family, address):
    with socket.socket(family) as link:
        link.settimeout(3)
        try:
            link.connect(address)
            return "reached"
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
print(reach(socket.AF_INET, ("127.0.0.1", {port})))
print(reach(socket.AF_INET, ("10.0.2.2", 80)), reach(socket.AF_INET, ("8.8.8.8", 53)))
print(reach(socket.AF_INET6, ("::1", {GATEWAY_PORT})), reach(socket.AF_INET6, ("2001:4860:4860::8888", 53)))
print(reach(socket.AF_UNIX, "\\0agar-test-{os.getpid()}"), reach(socket.AF_UNIX, "{sandbox.server.path}"))
try:
    print(socket.getaddrinfo("example.org", 80))
except OSError as error:
    print("no name")
"""
        result = await sandbox.exec([python3, "-I", "-c", code])
    assert result.stdout.split("\n") == [
        "ECONNREFUSED",
        "ENETUNREACH ENETUNREACH",
        "ECONNREFUSED ENETUNREACH",
        "ECONNREFUSED ENOENT",
        "no name",
        "",
    ], result.stderr
    devices = await sandbox.exec("cut -d: -f1 -s /proc/net/dev | tr -d ' '")
    assert devices.stdout.split() == ["lo"]
    assert sandbox.server.calls == 0


async def test_a_command_has_no_rights_over_its_network(sandbox, python3):
    code = """
import errno, fcntl, socket, struct
for call in (lambda: socket.create_server(("127.0.0.1", 80)),
             lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
             lambda: fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914,
                                 struct.pack("16sH14x", b"lo", 0))):
    try:
        call()
        print("done")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    result = await sandbox.exec([python3, "-I", "-S", "-c", code])
    assert result.stdout.split() == ["EACCES", "EPERM", "EPERM"], result.stderr


async def test_no_descriptor_of_the_way_out_is_inherited(sandbox):
    result = await sandbox.exec("for d in self 1; do readlink /proc/$d/fd/* | sed 's/[0-9]//g'; done")
    assert set(result.stdout.split("\n")) <= {"/memfd:agar (deleted)", "pipe:[]", "anon_inode:[eventfd]", ""}


async def test_a_flood_of_connections_takes_a_bounded_number_of_ours(sandbox, python3):
    code = f"""
import socket, time
links = []
for _ in range(400):
    link = socket.socket()
    link.setblocking(False)
    link.connect_ex(("127.0.0.1", {GATEWAY_PORT}))
    links.append(link)
print("flooded", flush=True)
time.sleep(3)
"""
    before = len(os.listdir("/proc/self/fd"))
    flooding = asyncio.create_task(sandbox.exec([python3, "-I", "-S", "-c", code]))
    most = 0
    while not flooding.done():
        most = max(most, len(os.listdir("/proc/self/fd")))
        await asyncio.sleep(0.02)
    assert (await flooding).stdout == "flooded\n"
    assert 0 < sandbox.server.most <= 32
    assert most - before < 3 * 32 + 30
    assert (await call(sandbox, python3, "still here")).stdout == "STILL HERE"


async def test_a_killed_command_hangs_up(sandbox, python3):
    code = f"""
import socket, time
link = socket.create_connection(("127.0.0.1", {GATEWAY_PORT}))
link.sendall(b"never finished")
time.sleep(60)
"""
    running = asyncio.create_task(sandbox.exec([python3, "-I", "-S", "-c", code]))
    async with asyncio.timeout(40):
        await sandbox.server.there.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await sandbox.server.left.wait()
    assert sandbox.server.calls == 1


async def test_a_gateway_that_is_gone_is_a_broken_connection_not_a_hang(host, python3, tmp_path):
    async with BubblewrapSandbox(SPEC, host=host, gateway=tmp_path / "nothing") as sandbox:
        result = await call(sandbox, python3, "hello")
    assert result.killed_by is None
    assert (result.code, result.stdout) in ((0, ""), (1, ""))  # closed before or after what it sent


async def test_it_conforms_like_any_sandbox():
    async with upper() as server:
        report = await check_sandbox(lambda spec, gateway=None: create(spec, gateway=gateway or server.path), spec=SPEC)
    assert report.failed == {}
    assert available(SPEC) is None


def test_a_network_without_its_gateway_is_refused():
    with pytest.raises(ConfigError, match="needs the gateway's unix socket"):
        create(SPEC)
    with pytest.raises(ConfigError, match="needs the gateway's unix socket"):
        create(SandboxSpec(), gateway=Path("/nowhere"))


async def test_mounts_are_seen_and_cannot_be_written(host, tmp_path):
    folder = tmp_path / "closed" / "tools"
    folder.mkdir(parents=True)
    (folder / "hello").write_text("#!/bin/sh\necho hello from a mount\n")
    (folder / "hello").chmod(0o755)
    (folder / "private").write_text("mine")
    (folder / "private").chmod(0o600)
    if os.getuid() == 0:
        (tmp_path / "closed").chmod(0o700)  # the keeper finds its way, and nobody else needs to
    mounts = {"/opt/tools": folder, "/opt/one": folder / "hello"}
    async with BubblewrapSandbox(SandboxSpec(mounts=mounts), host=host) as sandbox:
        seen = await sandbox.exec("/opt/tools/hello; /opt/one; ls /opt; touch /opt/tools/x /opt/x; rm /opt/tools/hello")
        assert seen.stdout.split("\n") == ["hello from a mount"] * 2 + ["one", "tools", ""]
        assert seen.stderr.count("Read-only file system") == 3
        if os.getuid() == 0:
            assert (await sandbox.exec("cat /opt/tools/private")).code == 1
        # A planted link does not make the controller's own reading and writing reach a mount.
        await sandbox.exec("ln -s /opt/tools link; ln -s ../mounts up; ln -s /opt/one one")
        for path in ("link/private", "link/hello", "up", "one"):
            with pytest.raises(ToolError, match="No such file"):
                await sandbox.read(path)
        with pytest.raises(ToolError):
            await sandbox.write("link/planted", "x")
    assert sorted(path.name for path in folder.iterdir()) == ["hello", "private"]


async def test_a_closed_sandbox_lets_go_of_its_mounts(host, tmp_path):
    sandbox = BubblewrapSandbox(SandboxSpec(mounts={"/opt/tools": tmp_path}), host=host)
    await sandbox.exec("true")
    mounted = Path(f"/proc/{host.pid}/mounts")
    assert "/mounts/" in mounted.read_text()
    await sandbox.close()
    assert "/mounts/" not in mounted.read_text()
    assert tmp_path.is_dir()


@pytest.mark.parametrize("place", ["opt", "/", "/usr/x", "/work", "/opt/../usr", "/opt/", "/proc/1"])
def test_a_mount_cannot_take_a_place_of_the_sandboxs_own(place, tmp_path):
    with pytest.raises(ValidationError, match="mounts"):
        SandboxSpec(mounts={place: tmp_path})


async def test_a_mount_of_nothing_is_a_mistake_of_the_settings(tmp_path):
    async with create(SandboxSpec(mounts={"/opt/x": tmp_path / "gone"})) as sandbox:
        with pytest.raises(ConfigError, match="there is no"):
            await sandbox.exec("true")
