"""Every backend against the public conformance kit, and the kit against a backend that is wrong."""

import pytest

from agar.sandbox import SandboxSpec, create
from agar.sandbox.base import ExecResult
from agar.sandbox.checker import CHECKS, check_sandbox
from agar.sandbox.fake import FakeSandbox

BY_NAME = {check.name: check for check in CHECKS}
PLAYED = sorted(name for name, check in BY_NAME.items() if not check.real)


@pytest.mark.sandbox
@pytest.mark.parametrize("name", BY_NAME)
async def test_bubblewrap_conforms(name):
    report = await check_sandbox(create, checks=[BY_NAME[name]])
    assert report.failed == {}
    assert not report.refused or BY_NAME[name].optional


@pytest.mark.sandbox
@pytest.mark.parametrize("name", BY_NAME)
async def test_docker_conforms(name, docker_spec):
    report = await check_sandbox(create, spec=docker_spec, checks=[BY_NAME[name]])
    assert report.failed == {}
    assert not report.refused or BY_NAME[name].optional


async def test_the_fake_conforms_where_nothing_has_to_run():
    report = await check_sandbox(create, spec=SandboxSpec(backend="fake"), isolates=False)
    assert report.failed == {}
    assert sorted(report.passed) == PLAYED
    assert report.refused == {}


async def test_what_a_backend_openly_lacks_is_refused_and_not_failed():
    checks = [BY_NAME["reaches_listed_places_only"]]
    report = await check_sandbox(create, spec=SandboxSpec(backend="fake"), checks=checks)
    assert report.ok
    assert list(report.refused) == ["reaches_listed_places_only"]
    assert "the fake sandbox reaches nothing" in report.refused["reaches_listed_places_only"]


async def test_the_kit_names_what_a_wrong_backend_does_wrong():
    def deaf(_):
        return ExecResult(code=0)

    report = await check_sandbox(
        lambda spec, gateway=None: FakeSandbox(spec, script=deaf), spec=SandboxSpec(backend="fake"), isolates=True
    )
    assert not report.ok
    assert "expected 'one\\ntwo\\n'" in report.failed["runs_a_string_with_the_shell"]
    unprovable = {"refuses_a_forged_snapshot"}
    assert {name for name, check in BY_NAME.items() if check.real} - unprovable <= set(report.failed) | set(
        report.refused
    )
    assert "refuses_paths_outside" in report.passed
