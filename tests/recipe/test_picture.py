"""The picture exists, is a PNG, and needs no particular metrics."""

import json

import pytest
from matplotlib.axes import Axes

from agar.recipe.picture import compare, draw, smoothed


def write_run(metrics, envs, *, last=1.0):
    rows = [{"step": step, "rollout/reward_mean": last * step / 3} for step in range(1, 4)]
    for step, mean in ((0, 0.2), (3, 0.9)):
        rows += [{"step": step, f"eval/{env}/reward_mean": mean, f"eval/{env}/reward_se": 0.04} for env in envs]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_smoothing_is_a_trailing_mean():
    assert smoothed([1.0, 2.0, 3.0, 4.0], 2) == [1.0, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("envs", [[], ["Hunt-v0"], ["A-v0", "B-v0"]])
def test_a_run_with_any_number_of_evaluations_is_drawn(tmp_path, envs):
    metrics, picture = tmp_path / "metrics.jsonl", tmp_path / "reward.png"
    write_run(metrics, envs)
    draw(metrics, picture, title="a run")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_runs_stand_in_one_picture_each_with_its_label_and_its_evaluation(tmp_path, monkeypatch):
    drawn, spans = {}, []
    plot, errorbar = Axes.plot, Axes.errorbar
    monkeypatch.setattr(
        Axes, "plot", lambda axes, x, y, **how: drawn.update({how.get("label"): (x, y)}) or plot(axes, x, y, **how)
    )
    monkeypatch.setattr(
        Axes, "errorbar", lambda axes, x, y, **how: spans.append((*y, *how["yerr"])) or errorbar(axes, x, y, **how)
    )
    for name, envs in (("one", ["A-v0"]), ("two", [])):
        write_run(tmp_path / name, envs, last=0.3)
    compare({name: tmp_path / name for name in ("one", "two")}, tmp_path / "both.png", title="two runs")
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")
    steps, rewards = drawn["two"]
    assert (steps, rewards) == ([1, 2, 3], pytest.approx([0.1, 0.15, 0.2]))
    assert drawn["one"] == drawn["two"]
    assert spans == [(0.2, 0.9, 0.04, 0.04)]
