"""The E2B backend against a double of the service."""

import asyncio

import pytest

from agar.errors import ConfigError, SandboxError, UnsupportedPlatformError
from agar.sandbox import SandboxSpec, create
from agar.sandbox.checker import CHECKS, check_sandbox
from agar.sandbox.e2b.client import E2BClient
from agar.sandbox.e2b.sandbox import LIFETIME_S, E2BSandbox

pytestmark = pytest.mark.sandbox

_NAMES = """
    runs_a_string_with_the_shell runs_a_sequence_as_it_stands reports_failure_as_data refuses_impossible_arguments
    starts_in_the_workspace feeds_stdin closes_for_good writes_an_audit_line feeds_a_lot_of_stdin
    keeps_files_between_commands refuses_paths_outside leads_no_link_out puts_nothing_beyond_links
    snapshots_and_restores forks
    kills_at_the_deadline leaves_no_process stops_a_flood hides_the_environment has_no_network
"""
NAMES = tuple(_NAMES.split())
BY_NAME = {check.name: check for check in CHECKS}


def make(service):
    client = E2BClient(service.url, agent_url=service.url)
    return lambda spec, gateway=None: E2BSandbox(spec, client=client)


@pytest.fixture
async def sandbox(service):
    async with make(service)(SandboxSpec(backend="e2b")) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", NAMES)
async def test_it_does_what_a_sandbox_does(name, service):
    report = await check_sandbox(make(service), spec=SandboxSpec(backend="e2b"), checks=[BY_NAME[name]])
    assert report.failed == {}
    assert service.machines == {}, "all are deleted"


async def test_a_machine_is_asked_for_without_internet_and_with_an_end(sandbox, service):
    await sandbox.exec("true")
    assert service.made == [
        {"templateID": "base", "timeout": LIFETIME_S, "secure": True, "allow_internet_access": False}
    ]


async def test_a_cancelled_command_is_killed(sandbox, service):
    running = asyncio.create_task(sandbox.exec("sleep 60", timeout_s=60.0))
    async with asyncio.timeout(30):
        while not service.running:  # noqa: ASYNC110  the double's own doing
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert service.running == {}
    assert (await sandbox.exec("echo usable")).stdout == "usable\n"


async def test_an_agent_that_hangs_up_is_our_failure_and_not_the_commands(sandbox, service):
    await sandbox.exec("true")
    service.hangs_up = True
    with pytest.raises(SandboxError, match="hung up"):
        await sandbox.exec("true")


async def test_a_machine_that_is_still_there_is_told(service):
    sandbox = make(service)(SandboxSpec(backend="e2b"))
    await sandbox.exec("true")
    service.keeps = True
    with pytest.raises(SandboxError, match="still there"):
        await sandbox.close()
    service.keeps = False
    await sandbox.close()
    assert service.machines == {}


async def test_a_wrong_key_is_named(service):
    sandbox = E2BSandbox(SandboxSpec(backend="e2b"), client=E2BClient(service.url, key="another"))
    with pytest.raises(SandboxError, match=r"401.*E2B_API_KEY"):
        await sandbox.exec("true")


async def test_what_it_does_not_offer_is_refused(monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", "k")
    with pytest.raises(UnsupportedPlatformError, match="another backend"):
        await create(SandboxSpec(backend="e2b")).start(["cat"])
    for changes in ({"memory_mib": 64}, {"network": "none", "pids": 9}, {"cpus": 1.0}, {"network": ("a:1",)}):
        with pytest.raises(ConfigError, match="leave these out"):
            create(SandboxSpec(backend="e2b", **changes))
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(ConfigError, match="set E2B_API_KEY"):
        create(SandboxSpec(backend="e2b"))
