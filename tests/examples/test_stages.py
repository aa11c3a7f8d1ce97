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


SMALL = stages.Example(
    name="small",
    title="Small-v0",
    sft=Path("sft.toml"),
    train=Path("tiny.toml"),
    make=lambda directory, seed: directory,
    prepare=lambda directory: [f"--evaluate.0.path={directory / 'tasks'}"],
    purpose="Try.",
    done="finds {} of it",
)


def test_an_example_runs_stage_by_stage(use_stages, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = use_stages().asked
    assert SMALL.main(["--dir", str(tmp_path), "--seed", "3", "--run.steps=2"]) == 0
    shared = [f"--run.dir={tmp_path}", "--run.seed=3"]
    assert asked == [
        ("sft", Path("sft.toml"), [f"--policies.main.model={tmp_path / 'start-3'}", *shared]),
        (
            "train",
            Path("tiny.toml"),
            [
                f"--policies.main.model={tmp_path / 'sft' / 'main' / 'hf'}",
                *shared,
                f"--evaluate.0.path={tmp_path / 'tasks'}",
                "--run.steps=2",
            ],
        ),
    ]
    assert capsys.readouterr().out.strip() == (
        f"learnt: the agent now finds 95% of it, 25% before; picture: {tmp_path / 'reward.png'}"
    )


@pytest.mark.parametrize("stage", ["sft", "train"])
def test_a_stage_that_was_asked_to_stop_ends_the_example(use_stages, tmp_path: Path, stage: str) -> None:
    asked = use_stages(stop_at=stage).asked
    assert SMALL.main(["--dir", str(tmp_path)]) == 130
    assert asked[-1][0] == stage


@pytest.mark.parametrize("stage", ["sft", "train"])
def test_a_stage_that_fails_says_why(
    use_stages, tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    use_stages(fail_at=stage)
    assert SMALL.main(["--dir", str(tmp_path)]) == 1
    assert "small stopped: the engine did not start: read its log" in capsys.readouterr().err
