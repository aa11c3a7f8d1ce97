"""What a program inside can see, write and reach."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agar.sandbox.base import Sandbox
from agar.sandbox.checks.check import Check, Make, expect, expect_that
from agar.sandbox.config import GATEWAY_PORT, SandboxSpec

_ASK = "exec 3<>/dev/tcp/127.0.0.1/{port} && printf '{words}' >&3 && head -n 1 <&3"


async def hides_the_environment(sandbox: Sandbox) -> None:
    """Nothing of the controller's environment is visible, not even through the first process."""
    result = await sandbox.exec("cat /proc/[0-9]*/environ | tr '\\0' '\\n' | cut -d= -f1 | sort -u")
    known = {"", "HOME", "HOSTNAME", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}
    names = set(result.stdout.split("\n"))
    expect("names", names - known, set())
    expect_that("its own are visible", "HOME" in names, names)


async def writes_nowhere_else(sandbox: Sandbox) -> None:
    """Everything but `/work`, `/tmp`, `/dev/shm` is read-only."""
    for place in ("/", "/usr", "/etc", "/dev", "/proc/sys/kernel"):
        result = await sandbox.exec(f"(echo x > {place}/planted) 2>/dev/null && echo written")
        expect(f"writing to {place}", result.stdout, "")
    for place in ("/work", "/tmp", "/dev/shm"):
        result = await sandbox.exec(f"echo x > {place}/f && cat {place}/f")
        expect(f"writing to {place}", result.stdout, "x\n")


async def has_no_network(sandbox: Sandbox) -> None:
    """Only the sandbox's own loopback."""
    devices = await sandbox.exec("cut -d: -f1 -s /proc/net/dev | tr -d ' '")
    expect("devices", devices.stdout.split(), ["lo"])


async def sees_no_neighbour(make: Make, spec: SandboxSpec) -> None:
    """Files, processes and memory of another sandbox."""
    async with make(spec) as one, make(spec) as two:
        await one.exec("echo secret > /tmp/f; echo secret > /work/f; echo secret > /dev/shm/f")
        running = asyncio.create_task(one.exec("sleep 31.4159", timeout_s=40.0))
        try:
            found = await two.exec("cat /tmp/* /work/* /dev/shm/* /proc/[0-9]*/cmdline; ls -A /tmp /work /dev/shm")
        finally:
            running.cancel()
            await asyncio.wait([running])
        expect_that("no file of a neighbour", "secret" not in found.stdout and "\nf\n" not in found.stdout, found)
        expect_that("its own process", "/dev/shm" in found.stdout, found)
        expect_that("no process of a neighbour", "31.4159" not in found.stdout, found)


async def reaches_the_gateway_and_nothing_else(make: Make, spec: SandboxSpec) -> None:
    """`network = "gateway"`."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "gateway")
        server = await asyncio.start_unix_server(_answer, path)
        async with server, make(spec, gateway=path) as sandbox:
            asked = await sandbox.exec(["bash", "-c", _ASK.format(port=GATEWAY_PORT, words="hello\\n")])
            expect("the answer", (asked.stdout, asked.stderr), ("you said hello\n", ""))
            await has_no_network(sandbox)
            other = await sandbox.exec(["bash", "-c", _ASK.format(port=GATEWAY_PORT + 1, words="x\\n")])
            expect("another port", (other.stdout, other.code), ("", 1))


async def reaches_listed_places_only(make: Make, spec: SandboxSpec) -> None:
    """`network` as a list of places."""
    async with _listening() as listed, _listening() as unlisted:
        places = SandboxSpec.model_validate({**spec.model_dump(), "network": [f"localhost:{listed}"]})
        async with make(places) as sandbox:
            words = "CONNECT localhost:{}  HTTP/1.1\\r\\n\\r\\n".replace("  ", " ")
            for port, wanted in ((listed, "HTTP/1.1 200"), (unlisted, "HTTP/1.1 403")):
                asked = await sandbox.exec(["bash", "-c", _ASK.format(port=GATEWAY_PORT, words=words.format(port))])
                expect_that(f"asking the proxy for {'a' if wanted.endswith('200') else 'no'} listed place",
                            asked.stdout.startswith(wanted), asked)  # fmt: skip
            direct = await sandbox.exec(["bash", "-c", _ASK.format(port=listed, words="x\\n")])
            expect("without the proxy", (direct.stdout, direct.code), ("", 1))
            await has_no_network(sandbox)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"you said " + await reader.readline())
    await writer.drain()
    writer.close()


@asynccontextmanager
async def _listening() -> AsyncIterator[int]:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


ISOLATION = (
    Check(run=hides_the_environment),
    Check(run=writes_nowhere_else),
    Check(run=has_no_network),
    Check(run=sees_no_neighbour, makes=True),
    Check(run=reaches_the_gateway_and_nothing_else, makes=True, changes={"network": "gateway"}, optional=True),
    Check(run=reaches_listed_places_only, makes=True, optional=True),
)
"""Checks of what is kept apart."""
