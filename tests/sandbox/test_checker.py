"""Every backend against the public conformance kit, and the kit against a backend that is wrong."""

import pytest

from agar.sandbox import SandboxSpec, create
from agar.sandbox.base import ExecResult
from agar.sandbox.checker import check_sandbox
from agar.sandbox.fake import FakeSandbox


@pytest.mark.sandbox
async def test_bubblewrap_conforms():
    report = await check_sandbox(lambda: create(SandboxSpec()))
    assert report.failed == {}
    assert len(report.passed) == 15


async def test_the_fake_conforms_where_nothing_has_to_run():
    report = await check_sandbox(lambda: create(SandboxSpec(backend="fake")), isolates=False)
    assert report.failed == {}
    assert len(report.passed) == 10


async def test_the_kit_names_what_a_wrong_backend_does_wrong():
    def deaf(_):
        return ExecResult(code=0)

    report = await check_sandbox(lambda: FakeSandbox(SandboxSpec(backend="fake"), script=deaf), isolates=True)
    assert not report.ok
    assert "expected 'one\\ntwo\\n'" in report.failed["runs_a_string_with_the_shell"]
    assert {"has_no_network", "stops_a_flood", "kills_at_the_deadline"} <= set(report.failed)
    assert "refuses_paths_outside" in report.passed
