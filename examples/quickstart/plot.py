"""The quickstart's picture: reward while it learns, and held-out hunts before and after.

python -m agar.examples.quickstart.plot RUN_FOLDER
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agar.errors import ConfigError
from agar.recipe.picture import rows_of, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REWARD = "rollout/reward_mean"
HELD_OUT, ERROR = "eval/Hunt-v0/reward_mean", "eval/Hunt-v0/reward_se"
PALE, BLUE, ORANGE, GREY = "#9ecae1", "#2171b5", "#d94801", "#969696"


def draw(metrics: Path, picture: Path, *, title: str) -> None:
    """Draw `picture` (PNG): the training reward over optimiser steps on the left, the evaluations on the right.

    Args:
        metrics: the run's `metrics.jsonl`.
        picture: the file to write.
        title: stands above both.

    Raises:
        ConfigError: the metrics hold no training step.
    """
    from matplotlib.figure import Figure

    rows = rows_of(metrics)
    trained = [row for row in rows if REWARD in row]
    if not trained:
        raise ConfigError(f"{metrics} holds no {REWARD}: give the metrics of a training run")
    figure = Figure(figsize=(9, 4), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 1], sharey=True)
    figure.suptitle(title)
    _curve(left, trained)
    _bars(right, [row for row in rows if HELD_OUT in row])
    figure.savefig(picture)


def _curve(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    steps, rewards = [row["step"] for row in rows], [row[REWARD] for row in rows]
    axes.plot(steps, rewards, color=PALE, linewidth=1, marker=".", label="one training batch")
    axes.plot(steps, smoothed(rewards, 5), color=BLUE, linewidth=2, label="mean of 5 batches")
    axes.set(title="while it learns", xlabel="optimiser step", ylabel="hunts that end in gold", ylim=(0.0, 1.05))
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)


def _bars(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    ends = [rows[0], rows[-1]] if len(rows) > 1 else rows
    names = ["before", "after"][: len(ends)]
    heights = [row[HELD_OUT] for row in ends]
    errors = [row.get(ERROR, 0.0) for row in ends]
    bars = axes.bar(names, heights, yerr=errors, capsize=4, color=[GREY, ORANGE][: len(ends)], width=0.6)
    axes.bar_label(bars, labels=[f"{height:.2f}" for height in heights], padding=3)
    axes.set(title="held-out hunts (± s.e.)")
    axes.grid(alpha=0.25, axis="y")


def main() -> None:
    """Draw the picture of a run folder."""
    parser = argparse.ArgumentParser(description="Draw reward.png of a quickstart run.")
    parser.add_argument("run", type=Path, help="the run folder")
    folder: Path = parser.parse_args().run
    draw(folder / "metrics.jsonl", folder / "reward.png", title=folder.name)
    print(folder / "reward.png")


if __name__ == "__main__":
    main()
