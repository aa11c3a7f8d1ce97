"""There is a report of every check, whatever the environment does to the process that checks it."""

from pathlib import Path

import pytest

from agar.cli import env_check
from agar.cli.env_check import check_apart
from agar.errors import ConfigError

MODULE = """
import ctypes, os
import agar

class Fatal(agar.Env):
    def __init__(self, *, how):
        self.how = how

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("a word that is no finding")
        return "Say yes.", {}

    def step(self, action):
        match self.how:
            case "exit": os._exit(3)
            case "hold": ctypes.PyDLL(None).sleep(600)  # nothing else of its process runs meanwhile
        return "", float(action.text == "yes"), True, False, {}

agar.register("Fatal-v0", Fatal, max_turns=1)
"""


@pytest.fixture
def fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "fatal.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "fatal:Fatal-v0"


def test_what_ends_its_process_is_the_finding_of_each_check_and_the_others_run(fatal: str) -> None:
    report = check_apart(fatal, kwargs={"how": "exit"}, levels=["L0"])
    assert not report.ok
    assert {check.name: check.message for check in report.checks if not check.ok} == dict.fromkeys(
        ["gymnasium interface", "gymnasium make", "episodes end"], "its process ended itself with exit code 3"
    )
    assert [check.name for check in report.checks if check.ok] == ["spaces", "task sets"]


def test_what_lets_nothing_else_run_is_ended_at_the_deadline(fatal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_check, "_GRACE_S", 1.0)
    report = check_apart(fatal, kwargs={"how": "hold"}, levels=["L0"], check_timeout_s=3.0)
    messages = {check.name: check.message for check in report.checks}
    assert list(messages) == ["gymnasium interface", "gymnasium make", "spaces", "task sets", "episodes end"]
    said = "DeadlineError: nothing was heard of it within 4 s; its process was ended"
    assert (messages["gymnasium interface"], messages["episodes end"]) == (said, said)


def test_a_module_that_cannot_be_imported_is_the_finding_of_every_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    report = check_apart("broken_module:Any-v0", kwargs={}, levels=["L4"])
    assert len(report.checks) == 4
    assert all("cannot be imported: ZeroDivisionError" in check.message for check in report.checks)


def test_unknown_names_and_levels_are_the_callers_mistake() -> None:
    with pytest.raises(ConfigError, match="unknown level 'L9': choose among L0, L1, L2, L3, L4, L5"):
        check_apart("Guess-v0", kwargs={}, levels=["L9"])
    with pytest.raises(ConfigError, match="Hunt-v0"):
        check_apart("Hnt-v0", kwargs={}, levels=["L0"])
