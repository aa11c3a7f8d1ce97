import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agar.errors import EngineError


class Stages:
    """Stands for `agar sft` and `agar train`: takes down what they were asked for, and says how they ended."""

    def __init__(self, folder: Path, *, stop_at: str = "", fail_at: str = "") -> None:
        self.folder, self.stop_at, self.fail_at = folder, stop_at, fail_at
        self.asked: list[tuple[str, Path, list[str]]] = []

    def __call__(self, command: str, recipe: Path, overrides: list[str]) -> Any:
        self.asked.append((command, recipe, list(overrides)))
        if command == self.fail_at:
            raise EngineError("the engine did not start: read its log")
        (self.folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "rollout/reward_mean": 0.5}) + "\n")
        return SimpleNamespace(
            stopped=command == self.stop_at,
            checkpoint=SimpleNamespace(path=self.folder / command),
            before=[SimpleNamespace(reward_mean=0.25, standard_error=0.04)],
            after=[SimpleNamespace(reward_mean=0.95, standard_error=0.02)],
            folder=SimpleNamespace(
                path=self.folder, metrics=self.folder / "metrics.jsonl", picture=self.folder / "reward.png"
            ),
        )


@pytest.fixture
def use_stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Stages]:
    """Put a `Stages` in the place of the commands."""

    def use(**how: str) -> Stages:
        stages = Stages(tmp_path, **how)
        monkeypatch.setattr("agar.examples.stages.stage", stages)
        return stages

    return use
