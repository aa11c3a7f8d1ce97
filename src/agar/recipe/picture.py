"""The picture of a run: reward while it learns, and the evaluations before and after."""

import json
from collections.abc import Mapping, Sequence
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
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(f"the reward picture needs matplotlib: {to_install('plot')}") from error
    rows = rows_of(metrics)
    figure = Figure(figsize=(9, 4), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 1], sharey=True)
    figure.suptitle(title)
    _curve(left, [row for row in rows if REWARD in row])
    _bars(right, rows)
    low, high = right.get_ylim()
    right.set_ylim(low, high + 0.08 * (high - low))  # room for the numbers above the bars
    figure.savefig(picture)


def _curve(axes: "Axes", rows: Sequence[Row]) -> None:
    steps, rewards = [row["step"] for row in rows], [row[REWARD] for row in rows]
    axes.plot(steps, rewards, color=PALE, linewidth=1, marker=".", label="one training batch")
    axes.plot(steps, smoothed(rewards), color=BLUE, linewidth=2, label=f"mean of {WINDOW} batches")
    axes.set(title="while it learns", xlabel="optimiser step", ylabel="reward")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)


def _bars(axes: "Axes", rows: Sequence[Row]) -> None:
    """The first and the last result of each evaluation."""
    names = sorted({key for row in rows for key in row if key.startswith("eval/") and key.endswith("/reward_mean")})
    labels, heights, errors, colours = [], [], [], []
    for name in names:
        found = [(row[name], row.get(name.removesuffix("_mean") + "_se", 0.0)) for row in rows if name in row]
        for when, (mean, error), colour in zip(("before", "after"), (found[0], found[-1]), (GREY, ORANGE), strict=True):
            labels.append(when if len(names) == 1 else f"{name.split('/')[1]}\n{when}")
            heights.append(mean)
            errors.append(error)
            colours.append(colour)
    bars = axes.bar(labels, heights, yerr=errors, capsize=4, color=colours, width=0.6)
    axes.bar_label(bars, labels=[f"{height:.2f}" for height in heights], padding=3)
    axes.set(title="evaluation (± s.e.)")
    axes.grid(alpha=0.25, axis="y")
