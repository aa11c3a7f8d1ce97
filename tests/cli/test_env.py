"""`agar env`."""

import io
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
    assert main(["env", "check", "Calc-v0"]) == 0
    shown = capsys.readouterr().out
    assert "Calc-v0: fit to train in" in shown
    assert "L5 ok   trainable: 32 episodes" in shown


def test_levels_can_be_chosen_and_the_report_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["env", "check", "Hunt-v0", "--levels", "L1", "--kwargs", '{"sandbox": {"backend": "fake"}}', "--json"])
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert (report["env"], report["ok"]) == ("Hunt-v0", True)
    assert {check["level"] for check in report["checks"]} == {"L1"}
    assert main(["env", "check", "Guess-v0", "--levels", "L9"]) == 2


def test_a_new_environment_is_written_and_said_what_to_do_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "new", "word-maze", "--dir", str(tmp_path)]) == 0
    assert "agar env check WordMaze-v0" in capsys.readouterr().out
    assert (tmp_path / "word-maze" / "src" / "word_maze" / "__init__.py").exists()
    assert main(["env", "new", "word-maze", "--dir", str(tmp_path)]) == 2


def test_a_person_plays(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("50\n/quit\n"))
    assert main(["env", "play", "Guess-v0", "--task", "3"]) == 0
    shown = capsys.readouterr().out
    assert "Guess a number between 1 and 99." in shown
    assert "1 turn(s), reward 0, left before the end" in shown
    assert main(["env", "play", "Guess-v0", "--task", "-1"]) == 2


def test_what_an_environment_raises_in_play_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raising.py").write_text(
        "import agar\n"
        "class Raising(agar.Env):\n"
        "    def __init__(self, at):\n"
        "        self.at = at\n"
        "        if at == 'make':\n"
        "            raise KeyError('no map')\n"
        "    def gold(self):\n"
        "        raise KeyError('no idea')\n"
        "agar.register('Raising-v0', Raising)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO("/gold\n"))
    for at, said in (("make", "no map"), ("gold", "no idea")):
        assert main(["env", "play", "raising:Raising-v0", "--kwargs", json.dumps({"at": at})]) == 1
        shown = capsys.readouterr().err
        assert shown.startswith("error: ")
        assert f"raised KeyError: '{said}'" in shown


def test_arguments_that_are_no_object_are_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, said in (("[1]", "expected a JSON object"), ("{", "is not JSON")):
        with pytest.raises(SystemExit) as end:
            main(["env", "check", "Guess-v0", "--kwargs", wrong])
        assert end.value.code == 2
        assert said in capsys.readouterr().err


def test_an_environment_that_breaks_the_contract_is_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no_end.py").write_text(
        "import agar\n"
        "from agar.envs.library.guess import Guess\n"
        "class NoEnd(Guess):\n"
        "    def close(self):\n"
        "        raise KeyError('lost')\n"
        "agar.register('NoEnd-v0', NoEnd)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["env", "check", "no_end:NoEnd-v0", "--levels", "L4"]) == 1
    shown = capsys.readouterr().out
    assert "FAIL closing: " in shown
    assert "KeyError: 'lost'" in shown


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
