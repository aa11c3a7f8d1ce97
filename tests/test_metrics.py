"""Metric sinks: what stands in the file, what is shown, and that every sink is closed."""

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from agar.errors import ConfigError
from agar.metrics import ConsoleSink, JsonlSink, Sinks, number
from agar.types import Metrics


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_row_is_on_disk_before_the_file_is_closed(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "run" / "metrics.jsonl")
    sink.write(1, {"trainer/loss": 0.5})
    [row] = rows(tmp_path / "run" / "metrics.jsonl")
    assert row["step"] == 1
    assert row["trainer/loss"] == 0.5
    sink.close()
    sink.close()


def test_numbers_that_json_lacks_are_written_as_text(tmp_path: Path) -> None:
    with JsonlSink(tmp_path / "m.jsonl") as sink:
        sink.write(1, {"a": math.nan, "b": -math.inf, "c": 1.0})
    text = (tmp_path / "m.jsonl").read_text()

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    row = json.loads(text, parse_constant=refuse)
    assert (row["a"], row["b"], row["c"]) == ("nan", "-inf", 1.0)


def test_a_resumed_run_takes_out_the_rows_that_it_will_write_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with JsonlSink(path) as sink:
        for step in (1, 2, 3):
            sink.write(step, {"x": float(step)})
    with path.open("a") as file:
        file.write('{"step": 4, "x"')  # killed in the middle of a line
    with JsonlSink(path, resume_after=2) as sink:
        sink.write(3, {"x": 30.0})
    assert [(row["step"], row["x"]) for row in rows(path)] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_time_goes_on_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "time_s": 1000.0}\n')
    with JsonlSink(path, resume_after=1) as sink:
        sink.write(2, {})
    assert float(str(rows(path)[-1]["time_s"])) >= 1000.0


def test_a_file_that_cannot_be_written_is_a_clean_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write metrics"):
        JsonlSink(tmp_path / "file" / "m.jsonl")


def test_a_terminal_shows_the_last_steps_and_only_columns_that_have_numbers() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with ConsoleSink(10, rows=2, columns={"a": "reward", "b": "loss"}, console=console) as sink:
        for step in (7, 8, 9):
            sink.write(step, {"a": step / 10})
        with sink.activity("evaluate", total=4) as bar:
            bar.update(2)
    last = out.getvalue().rsplit("reward", 1)[-1]
    assert "0.9000" in last
    assert "0.8000" in last
    assert "0.7000" not in last
    assert "loss" not in out.getvalue()
    assert "9/10" in last


def test_without_a_terminal_each_step_is_a_line() -> None:
    out = io.StringIO()
    with ConsoleSink(2, columns={"a": "reward"}, console=Console(file=out, width=100)) as sink:
        sink.write(1, {"a": 0.25, "other": 1.0})
        sink.note("saved")
        with sink.activity("evaluate"):
            pass
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["step 1  reward 0.2500", "saved"]
    assert lines[2].startswith("evaluate: ")


@pytest.mark.parametrize("terminal", [True, False])
def test_brackets_are_shown_as_they_are(terminal: bool) -> None:
    out = io.StringIO()
    with ConsoleSink(2, console=Console(file=out, width=100, force_terminal=terminal)) as sink:
        sink.note("no file [/INST] in [retry]")
        with sink.activity("evaluate [/x]"):
            pass
    assert "no file [/INST] in [retry]" in out.getvalue()


class Broken:
    def __init__(self) -> None:
        self.closed = False

    def write(self, step: int, metrics: Metrics) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        raise OSError("disk is full")


def test_all_sinks_get_the_row_and_all_are_closed_though_one_fails(tmp_path: Path) -> None:
    jsonl, broken = JsonlSink(tmp_path / "m.jsonl"), Broken()
    both = Sinks([jsonl, broken])
    both.write(1, {"a": 1.0})
    with pytest.raises(OSError, match="disk is full"):
        both.close()
    assert broken.closed
    assert len(rows(tmp_path / "m.jsonl")) == 1
    with pytest.raises(ValueError, match="closed file"):
        jsonl.write(2, {})


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.41249, "0.4125"), (12.5, "12.50"), (1234.0, "1234"), (1.2e-6, "1.2e-06")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text
