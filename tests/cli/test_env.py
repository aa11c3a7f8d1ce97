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
