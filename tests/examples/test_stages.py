from collections.abc import Sequence
from pathlib import Path

import pytest

from agar.errors import ConfigError
from agar.examples import stages
from agar.ledger.families import family_for
from agar.recipe.start import WARM_UP


@pytest.mark.timeout(180)
def test_a_policy_is_made_for_what_a_recipe_demonstrates(tmp_path: Path) -> None:
    recipe = tmp_path / "sft.toml"
    recipe.write_text(WARM_UP.read_text().replace("[demonstrations]", '[demonstrations]\nenv = "Calc-v0"'))
    made = stages.make_for(recipe, tmp_path / "start", seed=1)
    assert len(family_for(made).tokenizer.encode("calculator", special=False)) < len("calculator")
    assert (made / "model.safetensors").is_file()


def test_a_recipe_without_demonstrations_makes_no_policy(tmp_path: Path) -> None:
    recipe = tmp_path / "train.toml"
    recipe.write_text('[[tasks]]\nenv = "Calc-v0"\n')
    with pytest.raises(ConfigError, match=r"has no \[demonstrations\]"):
        stages.make_for(recipe, tmp_path / "start", seed=1)


LEARNT = stages.Learnt(
    before=0.25, after=0.75, before_error=0.1, after_error=0.1, folder=Path("run"), policy=Path("policy")
)


def run(warm: Path | None, learnt: stages.Learnt | None, *words: str) -> tuple[int, list[object]]:
    asked: list[object] = []

    def warm_up(directory: Path, *, seed: int) -> Path | None:
        asked.append((directory, seed))
        return warm

    def reinforce(directory: Path, warm: Path, *, seed: int, overrides: Sequence[str] = ()) -> stages.Learnt | None:
        asked.append((directory, warm, seed, list(overrides)))
        return learnt

    return stages.main("small", warm_up, reinforce, purpose="Try.", done="finds {} of it", words=words), asked


def test_an_example_runs_stage_by_stage(capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = run(Path("warm"), LEARNT, "--seed", "3", "--run.steps=2")
    assert code == 0
    assert asked == [(Path("runs/small"), 3), (Path("runs/small"), Path("warm"), 3, ["--run.steps=2"])]
    assert capsys.readouterr().out.strip() == (
        "learnt: the agent now finds 75% of it, 25% before; picture: run/reward.png"
    )


@pytest.mark.parametrize(("warm", "stages_asked"), [(None, 1), (Path("warm"), 2)])
def test_a_stage_that_was_asked_to_stop_ends_the_example(warm: Path | None, stages_asked: int) -> None:
    code, asked = run(warm, None)
    assert (code, len(asked)) == (130, stages_asked)


def test_a_stage_that_fails_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(directory: Path, *, seed: int) -> Path | None:
        raise ConfigError("no such thing: make one")

    def never(*_: object, **__: object) -> None:
        raise AssertionError

    assert stages.main("small", fail, never, purpose="Try.", done="{}", words=[]) == 1
    assert "small stopped: no such thing: make one" in capsys.readouterr().err
