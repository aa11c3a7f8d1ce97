"""`agar env`."""

import json

import pytest

from agar.cli.main import main
from agar.envs.registry import registered


def test_the_list_holds_every_registered_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "list", "--json"]) == 0
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)] == sorted(registered())
    assert main(["env", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in registered())


def test_an_unknown_environment_is_a_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "Hnt-v0"]) == 2
    assert "Hunt-v0" in capsys.readouterr().err


def test_a_sound_environment_passes_its_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "check", "Guess-v0"]) == 0
    assert "Guess-v0: fit to train in" in capsys.readouterr().out


def test_an_environment_that_breaks_the_contract_is_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from agar.envs import checker

    failed = checker.Check(level="L0", name="spaces", ok=False, message="not a space")
    monkeypatch.setattr(checker, "check_env", lambda name: checker.Report(env=name, checks=(failed,)))
    assert main(["env", "check", "Guess-v0"]) == 1
    assert "FAIL spaces: not a space" in capsys.readouterr().out
