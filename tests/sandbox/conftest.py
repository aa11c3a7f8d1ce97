"""Sandboxes with each way of enforcing limits that this machine has, and a Docker engine of our own."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agar.sandbox import SandboxSpec, available, guardian
from agar.sandbox.host import Host
from agar.sandbox.limits import Controllers, find_controllers


@pytest.fixture(scope="session", autouse=True)
def _machine_isolates(request):
    if any("sandbox" in item.keywords for item in request.session.items):
        problem = available(SandboxSpec())
        assert problem is None, problem


@pytest.fixture(scope="session", params=["cgroups", "rlimits"])
def host(request) -> Iterator[Host]:
    """A keeper with control groups, and one that has to do with resource limits."""
    controllers = find_controllers() if request.param == "cgroups" else Controllers(parents={})
    if request.param == "cgroups" and not controllers.parents:
        pytest.skip("no writable control group on this machine: its limits are tested as rlimits")
    with Host(controllers=controllers) as host:
        yield host


@pytest.fixture
def python3(tmp_path) -> str:
    """The interpreter that sandboxes of this machine offer."""
    found = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip("no python3 below /usr on this machine, so sandboxes have none")
    return found


@pytest.fixture(scope="session")
def docker_socket() -> Iterator[Path]:
    """A Docker engine that nobody else uses: without networks, registry or firewall rules, gone after the tests."""
    program = shutil.which("dockerd", path="/usr/local/bin:/usr/bin:/usr/sbin:/sbin")
    if program is None:
        pytest.skip("no dockerd on this machine: apt-get install --no-install-recommends docker.io")
    if os.getuid() != 0:
        pytest.skip("a Docker engine of our own needs root")
    folder = Path(tempfile.mkdtemp(prefix="agar-docker-"))  # a socket's path must be short
    path = folder / "docker.sock"
    words = [
        sys.executable,
        "-I",
        "-S",
        guardian.__file__,
        str(os.getpid()),
        "10",
        program,
        "--storage-driver=overlay2",
    ]
    words += [
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/pid",
        f"--host=unix://{path}",
    ]
    words += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none"]
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 50
        while not path.exists():
            if engine.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"dockerd does not start here: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        problem = available(SandboxSpec(backend="docker", engine=path))
        if problem is not None:
            pytest.skip(f"dockerd runs no container here: {problem}")
        yield path
    finally:
        engine.stdin.close()
        engine.wait(50)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def docker_spec(docker_socket) -> SandboxSpec:
    """A sandbox of that engine."""
    return SandboxSpec(backend="docker", engine=docker_socket)
