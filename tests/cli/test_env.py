"""`agar env`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

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


def test_a_module_of_the_current_folder_is_found_and_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "my_module.py").write_text(
        "import agar\n"
        "class Mine(agar.Env):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return 'Say yes.', {}\n"
        "    def step(self, action):\n"
        "        return '', float(action.text == 'yes'), True, False, {}\n"
        "    def gold(self):\n"
        "        return agar.Turn(text='yes')\n"
        "agar.register('Mine-v0', Mine)\n"
    )
    (tmp_path / "numpy.py").write_text("raise SystemExit('not the installed one')\n")
    command = shutil.which("agar", path=str(Path(sys.executable).parent))
    assert command is not None, "the package is installed with its command"
    done = subprocess.run(
        [command, "env", "check", "my_module:Mine-v0"], cwd=tmp_path, capture_output=True, text=True, timeout=50
    )
    assert "closing: it closes in mid-episode" in done.stdout, done.stderr
