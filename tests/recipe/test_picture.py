"""The picture exists, is a PNG, and needs no particular metrics."""

import json

import pytest

from agar.recipe.picture import draw, smoothed


def test_smoothing_is_a_trailing_mean():
    assert smoothed([1.0, 2.0, 3.0, 4.0], 2) == [1.0, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("envs", [[], ["Hunt-v0"], ["A-v0", "B-v0"]])
def test_a_run_with_any_number_of_evaluations_is_drawn(tmp_path, envs):
    rows = [{"step": step, "rollout/reward_mean": step / 3} for step in range(1, 4)]
    for step, mean in ((0, 0.2), (3, 0.9)):
        rows += [{"step": step, f"eval/{env}/reward_mean": mean, f"eval/{env}/reward_se": 0.04} for env in envs]
    metrics, picture = tmp_path / "metrics.jsonl", tmp_path / "reward.png"
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw(metrics, picture, title="a run")
    assert picture.read_bytes().startswith(b"\x89PNG")
