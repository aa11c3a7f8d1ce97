"""`agar policy` before anything starts; what it makes is played and trained in tests/end_to_end/test_new_env.py."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agar.cli import train
from agar.cli.main import main
from agar.config import resolve
from agar.envs.base import Env
from agar.envs.registry import register
from agar.recipe.config import Recipe
from agar.recipe.start import WARM_UP


class Silent(Env):
    """Without a gold turn."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "say", {}

    def step(self, action):
        return "", 0.0, True, False, {}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the warm-up was asked for, in its place."""
    calls: list[Any] = []

    def stage(command: str, recipe: Path, overrides: list[str]) -> Any:
        resolved = resolve(Recipe, files=[recipe], overrides=overrides).config
        resolved.check("sft")
        calls.append(resolved)
        folder = tmp_path / "run" / "main" / "hf"
        folder.mkdir(parents=True)
        return SimpleNamespace(stopped=False, checkpoint=SimpleNamespace(path=tmp_path / "run"))

    monkeypatch.setattr(train, "stage", stage)
    return calls


def test_it_makes_a_model_and_warms_it_up_on_the_environment(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    assert main(["policy", "Calc-v0", str(runs), "--seed", "3", "--run.steps", "7"]) == 0
    [recipe] = asked
    assert (recipe.demonstrations.env, recipe.run.seed, recipe.run.steps) == ("Calc-v0", 3, 7)
    assert recipe.policies["main"].model == runs / "start"
    assert (runs / "start" / "model.safetensors").is_file()
    assert (runs / "warm").resolve() == (tmp_path / "run" / "main" / "hf").resolve()
    assert f"--policies.main.model {runs / 'warm'}" in capsys.readouterr().out


def test_an_environment_without_gold_is_told_what_to_write(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register("SilentForPolicy-v0", Silent)
    assert main(["policy", "SilentForPolicy-v0", str(tmp_path / "runs")]) == 2
    assert "no gold()" in capsys.readouterr().err
    assert not asked
    assert not (tmp_path / "runs").exists()


def test_an_unknown_environment_is_a_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "Clc-v0", str(tmp_path)]) == 2
    assert "Calc-v0" in capsys.readouterr().err


def test_the_warm_ups_learning_rate_falls_until_its_last_step() -> None:
    words = ["--demonstrations.env=Calc-v0", "--policies.main.model=runs/start"]
    recipe = resolve(Recipe, files=[WARM_UP], overrides=words).config
    assert recipe.policies["main"].schedule.total_steps == recipe.run.steps
