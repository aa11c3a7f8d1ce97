import json
from pathlib import Path

import pytest

from agar.errors import ConfigError
from agar.examples.quickstart.plot import draw


def rows(*items: dict[str, float]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def test_a_picture_is_drawn_from_the_metrics_of_a_run(tmp_path: Path) -> None:
    held_out = "eval/Hunt-v0/reward_mean"
    (tmp_path / "metrics.jsonl").write_text(
        rows(
            {"step": 0, held_out: 0.25, "eval/Hunt-v0/reward_se": 0.04},
            *({"step": step, "rollout/reward_mean": step / 10} for step in range(1, 9)),
            {"step": 8, held_out: 0.9, "eval/Hunt-v0/reward_se": 0.03},
        )
    )
    draw(tmp_path / "metrics.jsonl", tmp_path / "reward.png", title="a run")
    data = (tmp_path / "reward.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 10_000


def test_a_run_without_evaluations_has_its_curve_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(rows({"step": 1, "rollout/reward_mean": 0.5}))
    draw(tmp_path / "metrics.jsonl", tmp_path / "reward.png", title="a run")
    assert (tmp_path / "reward.png").is_file()


def test_metrics_without_a_training_step_are_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(rows({"step": 0, "eval/Hunt-v0/reward_mean": 0.5}))
    with pytest.raises(ConfigError, match="no rollout/reward_mean"):
        draw(tmp_path / "metrics.jsonl", tmp_path / "reward.png", title="a run")
