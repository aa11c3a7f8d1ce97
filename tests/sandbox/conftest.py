"""Sandboxes with each way of enforcing limits that this machine has, and a Docker engine of our own."""

import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.sandbox.dockerd import NoEngineError, engine_of_our_own

from agar.sandbox import Sandbox, SandboxSpec, available, create
from agar.sandbox.bubblewrap import BubblewrapSandbox
from agar.sandbox.host import Host
from agar.sandbox.limits import Controllers, find_controllers

DOCKER_VARIABLE = "AGAR_TEST_DOCKER"
"""The environment variable that says what becomes of tests without an engine: `auto` skips them, `required` fails."""


@pytest.fixture(scope="session", autouse=True)
def _machine_isolates(request):
    if any("sandbox" in item.keywords for item in request.session.items):
        problem = available(SandboxSpec())
        assert problem is None, problem


class Hosts:
    """Keepers by how they limit, each started when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[str, Host] = {}

    def __getitem__(self, kind: str) -> Host:
        """The keeper with control groups, or the one that has to do with resource limits."""
        if kind not in self._started:
            controllers = find_controllers() if kind == "cgroups" else Controllers(parents={})
            if kind == "cgroups" and not controllers.parents:
                pytest.skip("no writable control group on this machine: its limits are tested as rlimits")
            self._started[kind] = self._stack.enter_context(Host(controllers=controllers))
        return self._started[kind]


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """The keepers of this test run."""
    with ExitStack() as stack:
        yield Hosts(stack)


@pytest.fixture(scope="session", params=["cgroups", "rlimits"])
def host(request, hosts) -> Host:
    """A keeper with control groups, and one that has to do with resource limits."""
    return hosts[request.param]


@pytest.fixture
def python3(tmp_path) -> str:
    """The interpreter that sandboxes of this machine offer."""
    found = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip("no python3 below /usr on this machine, so sandboxes have none")
    return found


@contextmanager
def engine_for_tests(engine: Callable[[], AbstractContextManager[Path]] = engine_of_our_own) -> Iterator[Path]:
    """An engine for the tests of this session; without one they are skipped, or fail where one is required.

    Args:
        engine: what to run.
    """
    wanted = os.environ.get(DOCKER_VARIABLE, "auto")
    if wanted not in ("auto", "required"):
        pytest.fail(f"{DOCKER_VARIABLE} is {wanted!r}: set it to auto or required")
    try:
        with engine() as path:
            yield path
    except NoEngineError as error:
        if wanted == "required":
            pytest.fail(f"{error} ({DOCKER_VARIABLE} is required; auto skips what needs an engine)")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def docker_socket() -> Iterator[Path]:
    """A Docker engine that nobody else uses: without networks, registry or firewall rules, gone after the tests."""
    with engine_for_tests() as path:
        yield path


@pytest.fixture(scope="session")
def docker_spec(docker_socket) -> SandboxSpec:
    """A sandbox of that engine."""
    return SandboxSpec(backend="docker", engine=docker_socket)


@pytest.fixture(params=["cgroups", "rlimits", "docker"])
async def hostile_sandbox(request) -> AsyncIterator[Sandbox]:
    """A small sandbox of every kind that isolates."""
    limits = {"memory_mib": 64, "pids": 32, "disk_mib": 8, "files": 500}
    if request.param == "docker":
        docker = request.getfixturevalue("docker_spec")
        made = create(docker.model_copy(update=limits))
    else:
        made = BubblewrapSandbox(SandboxSpec(**limits), host=request.getfixturevalue("hosts")[request.param])
    async with made as sandbox:
        yield sandbox
