"""Sandboxes with each way of enforcing limits that this machine has."""

from collections.abc import Iterator

import pytest

from agar.sandbox import SandboxSpec, available
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
    import shutil

    found = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip("no python3 below /usr on this machine, so sandboxes have none")
    return found
