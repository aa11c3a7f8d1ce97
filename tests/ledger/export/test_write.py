"""An export reads a run trace by trace, and accounts for every episode."""

from dataclasses import replace

import pytest

from agar.errors import ConfigError, LedgerError
from agar.ledger.export.write import TARGETS, export
from agar.ledger.saved import SavedTraces
from agar.ledger.trace import dump_traces
from agar.types import Outcome


@pytest.fixture
def run(tmp_path, trace):
    (tmp_path / "run" / "traces").mkdir(parents=True)
    folder = tmp_path / "run" / "traces"
    failed = replace(trace, trajectory="k#5/1", outcome=Outcome.INFRA_ERROR)
    empty = replace(failed, trajectory="k#5/2", nodes=(), turn_rewards={}, divergences=())
    dump_traces(folder / "step-000001.jsonl", [trace, failed, empty])
    dump_traces(folder / "step-000002.jsonl", [replace(trace, trajectory="k#6/0")])
    dump_traces(folder / "eval-000000-Hunt-v0.jsonl", [trace])
    return SavedTraces.find(tmp_path / "run")


@pytest.mark.parametrize(("to", "files", "rows"), [("slime", 2, 4), ("verl", 2, 4), ("atif", 3, 3), ("parquet", 2, 4)])
def test_every_episode_is_accounted_for(run, tmp_path, to, files, rows):
    pytest.importorskip({"slime": "torch", "atif": "json"}.get(to, "pyarrow"))
    report = export(run.batches(), to, tmp_path / "out")
    assert (report.files, report.episodes, report.rows) == (files, 4, rows)
    assert len(list((tmp_path / "out").iterdir())) == files
    gave_none = {"no model call": 1} if to == "atif" else {"no model call": 1, "infra_failure": 1}
    assert report.without_rows == gave_none
    assert set(report.unread) == set(report.concerned)
    assert all(
        text and count > 0 for text, count in zip(report.unread.values(), report.concerned.values(), strict=True)
    )


def test_evaluations_are_not_batches(run):
    assert [file.stem for file in run.files] == ["eval-000000-Hunt-v0", "step-000001", "step-000002"]
    assert [file.stem for file in run.batches().files] == ["step-000001", "step-000002"]
    with pytest.raises(ConfigError, match="evaluations only"):
        SavedTraces(files=run.files[:1], policy=run.policy).batches()


@pytest.mark.parametrize("to", ["slime", "verl"])
def test_traces_of_two_policies_are_not_one_training_set(trace, tmp_path, to):
    pytest.importorskip({"slime": "torch"}.get(to, "pyarrow"))
    file = tmp_path / "traces.jsonl"
    dump_traces(file, [replace(trace, policy="a"), replace(trace, policy="b", role="judge")])
    saved = SavedTraces.find(file)
    with pytest.raises(ConfigError, match=f"{to} trains one policy and these traces are of a, b: .*--policy"):
        export(saved, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="no trace is of policy 'c': there are a, b"):
        export(saved, to, tmp_path / "out", policy="c")
    assert export(saved, to, tmp_path / "out", policy="b").episodes == 1
    assert export(saved, "atif", tmp_path / "both").episodes == 2


def test_a_folder_with_something_in_it_is_refused(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        export(run, "atif", tmp_path / "out")
    with pytest.raises(ConfigError, match="cannot write into"):
        export(run, "atif", tmp_path / "out" / "mine")


def test_an_unknown_shape_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match="slime, verl, atif, parquet"):
        export(run, "csv", tmp_path / "out")
    assert list(TARGETS) == ["slime", "verl", "atif", "parquet"]


def test_a_line_that_is_no_trace_is_named(run, tmp_path):
    run.files[1].write_bytes(b"{}\n")
    with pytest.raises(LedgerError, match=r"step-000001\.jsonl:1: not a trace line"):
        export(run.batches(), "atif", tmp_path / "out")
