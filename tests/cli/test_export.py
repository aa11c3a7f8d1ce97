"""`agar export` over a run that a real rollout wrote: the files, what is said not to be in them, wrong commands."""

import json

import pytest

from agar.cli.export import SHAPES
from agar.cli.main import main
from agar.ledger.export.write import TARGETS


def test_episodes_become_documents(small_run, tmp_path, capsys):
    assert main(["export", str(small_run), "--to", "atif", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path / 'out'}: 4 rows of 4 episodes in 4 files" in out
    assert "not in atif's shape, of 4 episodes: rows (" in out
    told = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "out").iterdir()]
    assert {each["schema_version"] for each in told} == {"ATIF-v1.7"}


@pytest.mark.parametrize("to", ["verl", "parquet"])
def test_one_file_of_a_run_is_exported_too(small_run, tmp_path, capsys, to):
    pytest.importorskip("pyarrow")
    file = small_run / "traces" / "rollouts.jsonl"
    assert main(["export", str(file), "--to", to, str(tmp_path / "out")]) == 0
    assert "of 4 episodes" in capsys.readouterr().out


def test_evaluations_are_left_out_unless_wanted(small_run, tmp_path, capsys):
    run = tmp_path / "run"
    (run / "traces").mkdir(parents=True)
    line = (small_run / "traces" / "rollouts.jsonl").read_bytes().splitlines()[0]
    for name in ("step-000001", "eval-000001-Guess-v0"):
        (run / "traces" / f"{name}.jsonl").write_bytes(line + b"\n")
    assert main(["export", str(run), "--to", "atif", str(tmp_path / "a")]) == 0
    told = capsys.readouterr()
    assert "1 rows of 1 episodes" in told.out
    assert "1 evaluation files are left out" in told.err
    assert main(["export", str(run), "--to", "atif", str(tmp_path / "b"), "--evaluations"]) == 0
    assert "2 rows of 2 episodes" in capsys.readouterr().out


def test_a_policy_is_named_or_found_missing(small_run, tmp_path, capsys):
    assert main(["export", str(small_run), "--to", "atif", "--policy", "main", str(tmp_path / "out")]) == 0
    assert "4 rows of 4 episodes" in capsys.readouterr().out
    assert main(["export", str(small_run), "--to", "atif", "--policy", "other", str(tmp_path / "none")]) == 2
    assert "no trace is of policy 'other': there are main" in capsys.readouterr().err


def test_every_shape_has_its_line_of_help():
    assert list(SHAPES) == list(TARGETS)


def test_a_folder_that_is_taken_is_a_wrong_command_line(small_run, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["export", str(small_run), "--to", "atif", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
