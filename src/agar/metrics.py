"""Where numbers of a run go: a JSONL file always, a live table on the terminal, or several places at once.

A row is `{"step": 3, "time_s": 12.5, "rollout/reward_mean": 0.41, ...}`. No sink is global: whoever runs a loop owns
its sinks and closes them.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from agar.errors import ConfigError
from agar.types import Metrics

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

COLUMNS: Mapping[str, str] = {
    "rollout/reward_mean": "reward",
    "rollout/turns_mean": "turns",
    "trainer/loss": "loss",
    "trainer/grad_norm": "grad norm",
    "trainer/entropy_mean": "entropy",
    "trainer/engine_kl_mean": "KL",
    "loop/step_s": "seconds",
}
"""The columns of the live table: metric to title."""


class MetricSink(Protocol):
    """Takes one row of numbers a step."""

    def write(self, step: int, metrics: Metrics) -> None:
        """Take the numbers of a step; a step may come more than once, with other numbers."""
        ...

    def close(self) -> None:
        """Release what is held; may be called twice."""
        ...


class _Closing:
    """`with sink:` closes it."""

    def close(self) -> None:
        """Release what is held; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class JsonlSink(_Closing):
    """Appends one JSON object a row to a file, and flushes it, so that a killed run keeps its rows.

    Numbers that JSON has no word for are written as the texts `"nan"`, `"inf"` and `"-inf"`.

    Args:
        path: the file; made with its folder where missing.
        resume_after: on a resume, the last step that counts: rows of later steps and that step's evaluations, which
            the resumed run writes again, are taken out first, as is a last line cut in the middle.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path, *, resume_after: int | None = None) -> None:
        self.path = path
        self._began = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if resume_after is not None and path.exists():
                self._began -= _cut(path, resume_after)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write metrics to {path}: {error.strerror}: choose another run folder") from error

    def write(self, step: int, metrics: Metrics) -> None:
        """Append a row."""
        row = {"step": step, "time_s": round(time.monotonic() - self._began, 3), **metrics}
        self._file.write(json.dumps({key: _plain(value) for key, value in row.items()}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _plain(value: float) -> float | str:
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _cut(path: Path, last_step: int) -> float:
    """Rewrite a metrics file up to `last_step`; returns the run's age at its last kept row, in seconds."""
    kept, age_s = [], 0.0
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut in the middle by the kill; the resumed run writes that step again
        if row["step"] < last_step or (row["step"] == last_step and not _evaluated(row)):
            kept.append(line + "\n")
            age_s = float(row.get("time_s", 0.0))
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text("".join(kept), encoding="utf-8")
    os.replace(partial, path)
    return age_s


def _evaluated(row: Mapping[str, object]) -> bool:
    """Whether a row is an evaluation's."""
    return any(key.startswith("eval/") for key in row)


class ConsoleSink(_Closing):
    """A live table of the last steps under a progress bar; plain lines where the output is no terminal.

    Args:
        steps: steps of the run, for the bar.
        start: steps done already.
        columns: metric to title, in order; a metric that no row has is left out.
        rows: how many of the last steps to show.
        console: where to; standard output by default.
    """

    def __init__(
        self,
        steps: int,
        *,
        start: int = 0,
        columns: Mapping[str, str] = COLUMNS,
        rows: int = 12,
        console: "Console | None" = None,
    ) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = console or Console()
        self._columns, self._limit = columns, rows
        self._rows: list[tuple[int, dict[str, float]]] = []
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._task = self._progress.add_task("training", total=steps, completed=start)
        self._live = Live(self._picture(), console=self.console, refresh_per_second=4, auto_refresh=True)
        self._shown = False
        if self.console.is_terminal:
            self._live.start()
            self._shown = True

    def write(self, step: int, metrics: Metrics) -> None:
        """Show the numbers of a step; those of the step shown last are merged into its row."""
        if self._rows and self._rows[-1][0] == step:
            self._rows[-1][1].update(metrics)
        else:
            self._rows.append((step, dict(metrics)))
            del self._rows[: -self._limit]
        self._progress.update(self._task, completed=step)
        if self._shown:
            self._live.update(self._picture())
        else:
            shown = [f"{self._columns[key]} {number(metrics[key])}" for key in self._columns if key in metrics]
            self.note(f"step {step}  {'  '.join(shown)}")

    def note(self, text: str) -> None:
        """Print a line that stays, above the table; brackets in it are text, for it may quote what a model wrote."""
        self.console.print(text, highlight=False, markup=False)

    @contextmanager
    def activity(self, text: str, total: int | None = None) -> Iterator["Activity"]:
        """A second bar while something else goes on, such as an evaluation."""
        task = self._progress.add_task(text, total=total)
        began = time.monotonic()
        try:
            yield Activity(self, task)
        finally:
            self._progress.remove_task(task)
            if not self._shown:
                self.note(f"{text}: {time.monotonic() - began:.1f} s")

    def close(self) -> None:
        """Leave the last picture on the screen."""
        if self._shown:
            self._live.update(self._picture(), refresh=True)
            self._live.stop()
            self._shown = False

    def _picture(self) -> "RenderableType":
        from rich.console import Group

        return Group(*([self._table()] if self._rows else []), self._progress)

    def _table(self) -> "Table":
        from rich.table import Table

        present = [key for key in self._columns if any(key in metrics for _, metrics in self._rows)]
        table = Table("step", *(self._columns[key] for key in present), box=None, pad_edge=False, header_style="bold")
        for column in table.columns:
            column.justify = "right"
        for step, metrics in self._rows:
            table.add_row(str(step), *(number(metrics[key]) if key in metrics else "" for key in present))
        return table


class Activity:
    """Moves the bar of something that goes on beside the training.

    Args:
        sink: where it is shown.
        task: its bar.
    """

    def __init__(self, sink: ConsoleSink, task: int) -> None:
        self._sink, self._task = sink, task

    def update(self, done: int, total: int | None = None) -> None:
        """Say how far it is.

        Args:
            done: so many are done.
            total: of so many, where that is known by now.
        """
        from rich.progress import TaskID

        self._sink._progress.update(TaskID(self._task), completed=done, total=total)


class Sinks(_Closing):
    """Several sinks as one; closing closes each, even where one fails.

    Args:
        sinks: in the order in which they are written.
    """

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, step: int, metrics: Metrics) -> None:
        """Give the row to each."""
        for sink in self._sinks:
            sink.write(step, metrics)

    def close(self) -> None:
        """Close each."""
        with ExitStack() as stack:
            for sink in self._sinks:
                stack.callback(sink.close)


def number(value: float) -> str:
    """A number in at most seven characters: 0.4125, 12.5, 1.2e-06."""
    size = abs(value)
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if size < 1e-3 or size >= 1e5:
        return f"{value:.1e}"
    return f"{value:.4f}" if size < 1 else f"{value:.2f}" if size < 100 else f"{value:.0f}"
