import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agar.errors import EngineError
from agar.examples.quickstart import run


class Stages:
    """Stands for the two commands: takes down what they were asked for, and says how they ended."""

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


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lacks nothing."""
    monkeypatch.setattr(run, "missing", list)


def use(monkeypatch: pytest.MonkeyPatch, stages: Stages) -> Stages:
    monkeypatch.setattr("agar.examples.stages.stage", stages)
    return stages


def test_the_stages_hand_the_policy_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stages = use(monkeypatch, Stages(tmp_path))
    warm = run.warm_up(tmp_path, seed=3)
    assert warm == tmp_path / "sft" / "main" / "hf"
    assert (tmp_path / "warm").resolve() == warm.resolve()
    assert (tmp_path / "start").resolve() == (tmp_path / "start-3").resolve()
    outcome = run.reinforce(tmp_path, warm, seed=3, overrides=["--run.steps=2"])
    assert outcome is not None
    (sft, sft_recipe, sft_words), (train, train_recipe, train_words) = stages.asked
    assert (sft, sft_recipe, train, train_recipe) == ("sft", run.SFT, "train", run.TRAIN)
    assert f"--policies.main.model={tmp_path / 'start-3'}" in sft_words
    assert f"--policies.main.model={tmp_path / 'sft' / 'main' / 'hf'}" in train_words
    assert train_words[-1] == "--run.steps=2"
    assert "--run.seed=3" in sft_words
    assert "--run.seed=3" in train_words
    assert (outcome.before, outcome.after) == (0.25, 0.95)
    assert outcome.policy == tmp_path / "train" / "main" / "hf"
    assert (tmp_path / "reward.png").is_file()


def test_it_ends_with_what_was_learnt_and_what_to_run_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Stages(tmp_path))
    assert run.main(["--dir", str(tmp_path)]) == 0
    learnt, following = capsys.readouterr().out.strip().splitlines()[-2:]
    assert "95%" in learnt
    assert "25%" in learnt
    assert "reward.png" in learnt
    assert re.match(r"next: \S*agar eval \S+train.toml --policies.main.model ", following)


@pytest.mark.parametrize("stage", ["sft", "train"])
def test_a_stage_that_was_asked_to_stop_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stage: str) -> None:
    stages = use(monkeypatch, Stages(tmp_path, stop_at=stage))
    assert run.main(["--dir", str(tmp_path)]) == 130
    assert stages.asked[-1][0] == stage


def test_a_stage_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Stages(tmp_path, fail_at="train"))
    assert run.main(["--dir", str(tmp_path)]) == 1
    assert "read its log" in capsys.readouterr().err


def test_a_machine_that_lacks_something_is_told_so_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = use(monkeypatch, Stages(tmp_path))
    monkeypatch.setattr(run, "missing", lambda: ["sandbox: cannot start; allow user namespaces"])
    assert run.main(["--dir", str(tmp_path)]) == 1
    assert not stages.asked
    assert "allow user namespaces" in capsys.readouterr().err
