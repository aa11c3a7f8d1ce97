import re
from pathlib import Path

import pytest

from agar.examples.quickstart import run


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that lacks nothing."""
    monkeypatch.setattr(run, "missing", list)


def test_the_stages_hand_the_policy_on(use_stages, tmp_path: Path) -> None:
    stages = use_stages()
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
    use_stages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_stages()
    assert run.main(["--dir", str(tmp_path)]) == 0
    learnt, following = capsys.readouterr().out.strip().splitlines()[-2:]
    assert "95%" in learnt
    assert "25%" in learnt
    assert "reward.png" in learnt
    assert re.match(r"next: \S*agar eval \S+train.toml --policies.main.model ", following)


@pytest.mark.parametrize("stage", ["sft", "train"])
def test_a_stage_that_was_asked_to_stop_ends_it(use_stages, tmp_path: Path, stage: str) -> None:
    stages = use_stages(stop_at=stage)
    assert run.main(["--dir", str(tmp_path)]) == 130
    assert stages.asked[-1][0] == stage


def test_a_stage_that_fails_says_why(use_stages, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    use_stages(fail_at="train")
    assert run.main(["--dir", str(tmp_path)]) == 1
    assert "read its log" in capsys.readouterr().err


def test_a_machine_that_lacks_something_is_told_so_before_anything_starts(
    use_stages, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = use_stages()
    monkeypatch.setattr(run, "missing", lambda: ["sandbox: cannot start; allow user namespaces"])
    assert run.main(["--dir", str(tmp_path)]) == 1
    assert not stages.asked
    assert "allow user namespaces" in capsys.readouterr().err
