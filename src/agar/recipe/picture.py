"""Pictures of runs: reward while they learn, and the evaluations before and after."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agar.errors import MissingExtraError, to_install

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REWARD = "rollout/reward_mean"
PALE, BLUE, ORANGE, GREY = "#9ecae1", "#2171b5", "#d94801", "#969696"
WINDOW = 5

Row = Mapping[str, Any]


def rows_of(metrics: Path) -> list[dict[str, Any]]:
    """Every row of a `metrics.jsonl`."""
    return [json.loads(line) for line in metrics.read_text().splitlines() if line.strip()]


def smoothed(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """Trailing mean over at most `window` values."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def draw(metrics: Path, picture: Path, *, title: str) -> None:
    """Draw `picture` (PNG): training reward over optimiser steps on the left, evaluations on the right.

    Args:
        metrics: the run's `metrics.jsonl`.
        picture: the file to write.
        title: stands above both.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    rows = rows_of(metrics)
    with _halves(picture, title=title) as (left, right):
        _curve(left, [row for row in rows if REWARD in row])
        _bars(right, rows)


def compare(runs: Mapping[str, Path], picture: Path, *, title: str) -> None:
    """Draw `picture` (PNG): the smoothed training rewards of several runs, and the first evaluation of each.

    Args:
        runs: each run's `metrics.jsonl`, by the label that it gets.
        picture: the file to write.
        title: stands above both.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    with _halves(picture, title=title) as (left, right):
        for number, (label, metrics) in enumerate(runs.items()):
            rows, colour = rows_of(metrics), f"C{number % 10}"
            steps = [row["step"] for row in rows if REWARD in row]
            rewards = smoothed([row[REWARD] for row in rows if REWARD in row])
            left.plot(steps, rewards, color=colour, linewidth=2, label=label)
            for found in list(_evaluations(rows).values())[:1]:
                means, errors = zip(found[0], found[-1], strict=True)
                right.errorbar(["before", "after"], means, yerr=errors, color=colour, marker="o", capsize=4)
        left.set(title=f"while they learn (mean of {WINDOW} batches)", xlabel="optimiser step", ylabel="reward")
        left.legend(loc="lower right", frameon=False)
        right.set(title="evaluation (± s.e.)")
        right.margins(x=0.3)
        for axes in (left, right):
            axes.grid(alpha=0.25)


@contextmanager
def _halves(picture: Path, *, title: str) -> "Iterator[tuple[Axes, Axes]]":
    """A wide and a narrow half of one picture, which is written when both are filled."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(f"the reward picture needs matplotlib: {to_install('plot')}") from error
    figure = Figure(figsize=(9, 4), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 1], sharey=True)
    figure.suptitle(title)
    yield left, right
    low, high = right.get_ylim()
    right.set_ylim(min(low, 0.0), high + 0.08 * (high - low))  # room for the numbers above the bars
    figure.savefig(picture)


def _evaluations(rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """Mean and standard error of each evaluation, in the order of the steps, by the metric's name."""
    names = sorted({key for row in rows for key in row if key.startswith("eval/") and key.endswith("/reward_mean")})
    error_of = {name: name.removesuffix("_mean") + "_se" for name in names}
    return {name: [(row[name], row.get(error_of[name], 0.0)) for row in rows if name in row] for name in names}


def _curve(axes: "Axes", rows: Sequence[Row]) -> None:
    steps, rewards = [row["step"] for row in rows], [row[REWARD] for row in rows]
    axes.plot(steps, rewards, color=PALE, linewidth=1, marker=".", label="one training batch")
    axes.plot(steps, smoothed(rewards), color=BLUE, linewidth=2, label=f"mean of {WINDOW} batches")
    axes.set(title="while it learns", xlabel="optimiser step", ylabel="reward")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)


def _bars(axes: "Axes", rows: Sequence[Row]) -> None:
    """The first and the last result of each evaluation."""
    evaluations = _evaluations(rows)
    labels, heights, errors, colours = [], [], [], []
    for name, found in evaluations.items():
        for when, (mean, error), colour in zip(("before", "after"), (found[0], found[-1]), (GREY, ORANGE), strict=True):
            labels.append(when if len(evaluations) == 1 else f"{name.split('/')[1]}\n{when}")
            heights.append(mean)
            errors.append(error)
            colours.append(colour)
    bars = axes.bar(labels, heights, yerr=errors, capsize=4, color=colours, width=0.6)
    axes.bar_label(bars, labels=[f"{height:.2f}" for height in heights], padding=3)
    axes.set(title="evaluation (± s.e.)")
    axes.grid(alpha=0.25, axis="y")
