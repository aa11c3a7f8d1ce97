"""The runner of the suite: every test has one section, failures add up, nothing is left behind unseen."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tests.scripts import script

TESTS = Path(__file__).resolve().parent


@pytest.fixture
def runner() -> Iterator[ModuleType]:
    with script(TESTS / "run.py") as module:
        yield module


@pytest.mark.parametrize(
    ("path", "marks", "section"),
    [
        ("envs/test_a.py", set(), "fast"),
        ("envs/test_a.py", {"slow"}, "fast"),
        ("sandbox/test_a.py", {"sandbox"}, "sandbox"),
        ("agents/test_a.py", {"clients", "sandbox"}, "clients"),
        ("rollout/engines/test_a.py", {"sglang", "sandbox"}, "engines"),
        ("trainer/ray/test_a.py", {"ray", "megatron"}, "trainer"),
        ("trainer/test_a.py", {"sglang", "ray"}, "end-to-end"),
        ("end_to_end/test_a.py", set(), "end-to-end"),
        ("docs/test_blocks.py", {"sandbox"}, "docs"),
    ],
)
def test_a_test_belongs_to_the_section_of_its_folder_and_markers(
    path: str, marks: set[str], section: str, runner: ModuleType
) -> None:
    item = SimpleNamespace(
        path=TESTS / path,
        config=SimpleNamespace(rootpath=TESTS.parent),
        iter_markers=lambda: [SimpleNamespace(name=mark) for mark in marks],
    )
    with script(TESTS / "conftest.py") as conftest:
        assert conftest.section_of(item) == section
        assert set(conftest.SECTIONS) == set(runner.SECTIONS) - {"static"}


def test_results_are_counted_from_the_report(runner: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(
        '<testsuites><testsuite tests="10" failures="2" errors="1" skipped="3"/></testsuites>'
    )
    report = runner.Report(name="x")
    runner.count(tmp_path / "report.xml", report)
    assert report.counts == {"passed": 4, "failed": 3, "skipped": 3}
    assert report.bad


def test_a_process_left_behind_is_named_ended_and_a_failure(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE_S", 0.2)
    env = {**os.environ, runner.MARK: "mark-of-this-test"}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=env) as left:
        report = runner.Report(name="x")
        runner.clean_up(runner.Family(f"{runner.MARK}=mark-of-this-test".encode()), report)
        assert left.wait(timeout=10) != 0
    [problem] = report.problems
    assert f"(pid {left.pid})" in problem
    assert report.bad


def test_a_section_that_hangs_is_ended(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SECTION_LIMIT_S", 0.5)
    code, why = runner.run(
        ["python", "-c", "import time; time.sleep(60)"], dict(os.environ), runner.Family(b"NO=PROCESS")
    )
    assert code == 1
    assert why.startswith("ended after 0.5 s")


def test_the_summary_closes_in_pytests_form(runner: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = runner.Report(name="fast tests", seconds=61.5), runner.Report(name="sandbox", seconds=2.0)
    good.counts.update(passed=7, skipped=1)
    bad.problems.append("left behind: sleep (pid 1)")
    runner.summary([good, bad])
    shown = capsys.readouterr().out
    assert "1:01" in shown
    assert "FAILED sandbox: left behind: sleep (pid 1)" in shown
    assert shown.splitlines()[-1] == "===== 1 failed, 7 passed, 1 skipped in 63.50s ====="
