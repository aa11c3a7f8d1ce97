"""From a spec to a sandbox."""

import asyncio
import os
import threading
from pathlib import Path

from agar.errors import AgarError, ConfigError
from agar.sandbox.base import Sandbox
from agar.sandbox.config import SandboxSpec

_PROBE_TIMEOUT_S = 30.0
_SPARE_MIB = 16  # of a container's memory, beside its files


def create(spec: SandboxSpec, *, gateway: Path | None = None) -> Sandbox:
    """Make a sandbox; it starts at its first use, so this costs nothing.

    Isolation that the machine cannot give is refused at that first use, never replaced by less.

    Args:
        spec: what it is made of.
        gateway: the unix socket behind the port that `network = "gateway"` opens.

    Raises:
        ConfigError: the spec's network and `gateway` do not go together, or its backend has no such network.
    """
    if (spec.network == "gateway") != (gateway is not None):
        raise ConfigError(
            f'network = "{spec.network}" and gateway = {gateway}: a sandbox with network = "gateway", and no other, '
            "needs the gateway's unix socket"
        )
    if spec.backend == "fake":
        if isinstance(spec.network, tuple):
            raise ConfigError("network: the fake sandbox reaches nothing: choose backend bubblewrap or docker, or none")
        from agar.sandbox.fake import FakeSandbox

        return FakeSandbox(spec)
    if spec.backend == "remote":
        return _remote(spec)
    if spec.backend == "e2b":
        return _e2b(spec)
    if spec.backend == "docker":
        least_mib = spec.disk_mib * 3 // 2 + _SPARE_MIB
        if spec.memory_mib < least_mib:  # files alone could take what starts commands
            raise ConfigError(
                f"memory_mib = {spec.memory_mib}, disk_mib = {spec.disk_mib}: files of a Docker sandbox lie in its "
                f"memory and take up to one and a half times disk_mib: raise memory_mib to {least_mib}"
            )
        from agar.sandbox.docker.sandbox import DockerSandbox

        return DockerSandbox(spec, gateway=gateway)
    from agar.sandbox.bubblewrap import BubblewrapSandbox

    return BubblewrapSandbox(spec, gateway=gateway)


def _remote(spec: SandboxSpec) -> Sandbox:
    if spec.server is None or not spec.server.startswith(("http://", "https://")):
        raise ConfigError(f"server = {spec.server!r}: set it to what `agar sandbox serve` prints, http://host:8600")
    if spec.network == "gateway" or spec.mounts or spec.workspace is not None:
        raise ConfigError(
            'network = "gateway", mounts and workspace name things of this machine, which a remote sandbox cannot '
            "reach: leave them out, and use `put`"
        )
    from agar.sandbox.remote.client import SandboxClient
    from agar.sandbox.remote.sandbox import RemoteSandbox

    return RemoteSandbox(spec, client=SandboxClient(spec.server))


def _e2b(spec: SandboxSpec) -> Sandbox:
    others = SandboxSpec()
    fixed = ("network", "mounts", "workspace", "cpus", "memory_mib", "pids", "files", "user")
    if wrong := [name for name in fixed if getattr(spec, name) != getattr(others, name)]:
        raise ConfigError(f"{', '.join(wrong)}: a machine of E2B is what its template makes it: leave these out")
    from agar.sandbox.e2b.client import E2BClient
    from agar.sandbox.e2b.sandbox import E2BSandbox

    return E2BSandbox(spec, client=E2BClient(spec.server))


def available(spec: SandboxSpec) -> str | None:
    """Whether this machine can run such a sandbox, found out by running one command in it.

    Args:
        spec: what it would be made of.

    Returns:
        None where it works; else what is missing and how to get it.
    """
    if spec.backend == "fake":
        return None
    answer: list[str | None] = ["the sandbox probe did not finish"]
    # In a thread of its own, for the caller may have a running event loop.
    probe = threading.Thread(target=lambda: answer.append(asyncio.run(_probe(spec))), daemon=True)
    probe.start()
    probe.join(_PROBE_TIMEOUT_S)
    return answer[-1]


async def _probe(spec: SandboxSpec) -> str | None:
    nobody = Path(os.devnull) if spec.network == "gateway" else None
    try:
        async with create(spec, gateway=nobody) as sandbox:
            result = await sandbox.exec("echo works", timeout_s=_PROBE_TIMEOUT_S / 2)
    except AgarError as error:
        return str(error)
    if result.code != 0 or result.stdout != "works\n":
        return f"a sandbox started, but `echo` in it gave {result}: is /bin/sh whole, and memory_mib large enough?"
    return None
