"""The picture of a run: reward over steps, and the evaluations before and after."""

import json
from pathlib import Path
from typing import Any

from agar.errors import MissingExtraError


def rows_of(metrics: Path) -> list[dict[str, Any]]:
    """Every row of a `metrics.jsonl`."""
    return [json.loads(line) for line in metrics.read_text().splitlines() if line.strip()]


def smoothed(values: list[float], window: int) -> list[float]:
    """Trailing mean over at most `window` values."""
    return [sum(values[max(0, i + 1 - window) : i + 1]) / min(i + 1, window) for i in range(len(values))]


def draw(metrics: Path, picture: Path, *, title: str) -> None:
    """Draw `picture` (PNG) from a run's metrics.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("the reward picture needs matplotlib: pip install 'agar[plot]'") from error
    rows = rows_of(metrics)
    figure = Figure(figsize=(8, 4.2), dpi=130)
    axes = figure.add_subplot()
    steps = [row["step"] for row in rows if "rollout/reward_mean" in row]
    rewards = [row["rollout/reward_mean"] for row in rows if "rollout/reward_mean" in row]
    if steps:
        axes.plot(steps, rewards, color="#9ecae1", linewidth=1, label="training batch")
        axes.plot(steps, smoothed(rewards, 5), color="#2171b5", linewidth=2, label="mean of 5 steps")
    for name in sorted(
        {key for row in rows for key in row if key.startswith("eval/") and key.endswith("/reward_mean")}
    ):
        points = [(row["step"], row[name], row.get(name.replace("_mean", "_se"), 0.0)) for row in rows if name in row]
        axes.errorbar(
            [p[0] for p in points],
            [p[1] for p in points],
            yerr=[p[2] for p in points],
            fmt="o",
            color="#d94801",
            capsize=4,
            label=f"held out, {name.split('/')[1]} (± standard error)",
        )
        for step, mean, _ in points:
            axes.annotate(f"{mean:.2f}", (step, mean), textcoords="offset points", xytext=(6, -14), color="#d94801")
    axes.set(title=title, xlabel="optimiser step", ylabel="reward", ylim=(-0.03, 1.05))
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(picture)
