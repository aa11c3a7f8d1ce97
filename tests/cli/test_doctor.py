"""`agar doctor` finds what is missing and says the fix."""

import argparse
import json
import shutil
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from agar.cli import checks, doctor
from agar.cli.checks import Finding, Status


def test_what_is_here_is_found() -> None:
    found = {finding.name: finding for check in (checks.python, checks.packages, checks.ports) for finding in check()}
    assert found["Python"].status is Status.OK
    assert sys.executable in found["Python"].found
    assert found["packages: environments"].status is Status.OK
    assert "pydantic" in found["packages: environments"].found


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "importable", lambda module: module != "megatron.core")
    [finding] = [f for f in checks.packages() if f.name == "packages: trainer"]
    assert finding.status is Status.MISSING
    assert finding.found == "no megatron-core"
    assert "make env" in finding.fix
    assert ".[trainer]" in finding.fix


def test_an_engine_python_without_sglang_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("AGAR_ENGINE_PYTHON", str(script))
    [finding] = checks.engine()
    assert finding.status is Status.MISSING
    assert str(script) in finding.found
    monkeypatch.setenv("AGAR_ENGINE_PYTHON", str(tmp_path / "none"))
    [finding] = checks.engine()
    assert "does not start" in finding.found


def test_a_full_disk_is_missing_space(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**40, 2**40, 0))
    assert {finding.status for finding in checks.disk()} == {Status.MISSING}


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on() -> None:
    def broken() -> Iterator[Finding]:
        raise OSError("no /proc")

    found = doctor.examine([broken, checks.python])
    assert [finding.status for finding in found] == [Status.MISSING, Status.OK]
    assert "no /proc" in found[0].found


def test_the_exit_code_says_whether_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking() -> Iterator[Finding]:
        yield Finding(name="thing", status=Status.MISSING, found="nothing", fix="get one")

    monkeypatch.setattr(doctor, "CHECKS", (checks.python,))
    assert doctor.run(argparse.Namespace(json=True)) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "ok"
    monkeypatch.setattr(doctor, "CHECKS", (checks.python, lacking))
    assert doctor.run(argparse.Namespace(json=False)) == 1
    shown = capsys.readouterr().out
    assert "-> get one" in shown
    assert "1 missing" in shown
