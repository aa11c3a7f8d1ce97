"""Recipes, overrides, origins, and what a mistake in them is answered with."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, model_validator

from agar.config import BaseConfig, Origin, load_toml, resolve
from agar.errors import ConfigError


class OptimizerConfig(BaseConfig):
    lr: float = Field(1e-3, gt=0)
    betas: tuple[float, float] = (0.9, 0.95)


class GrpoConfig(BaseConfig):
    type: Literal["grpo"] = "grpo"
    clip: float = 0.2


class RlooConfig(BaseConfig):
    type: Literal["rloo"] = "rloo"
    leave_out: bool = True


class PolicyConfig(BaseConfig):
    model: Path
    group_size: int = Field(8, ge=1)
    optimizer: OptimizerConfig = OptimizerConfig()
    algorithm: Annotated[GrpoConfig | RlooConfig, Field(discriminator="type")] = GrpoConfig()

    @model_validator(mode="after")
    def _group(self) -> "PolicyConfig":
        if self.group_size == 1 and self.algorithm.type == "grpo":
            raise ValueError("group_size must be at least 2 with grpo, got 1: set group_size")
        return self


class Mode(StrEnum):
    FAST = "fast"
    SLOW = "slow"


class RecipeConfig(BaseConfig):
    trainer: PolicyConfig
    policies: dict[str, PolicyConfig] = Field(default_factory=dict)
    engine_arguments: dict[str, Any] = Field(default_factory=dict)
    mode: Mode = Mode.FAST
    name: str = "run"
    seed: int | None = None
    tags: tuple[str, ...] = ()
    stages: list[OptimizerConfig] = Field(default_factory=list)


MODEL = ["--trainer.model", "m"]


def refusal(*overrides: str, files: tuple[Path, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(RecipeConfig, files=files, overrides=overrides)
    return str(caught.value)


def test_later_files_and_overrides_win_and_each_value_knows_its_origin(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('seed = 1\n[trainer]\nmodel = "a"\ngroup_size = 4\n')
    (tmp_path / "more.toml").write_text('[trainer]\nmodel = "b"\n')
    files = [tmp_path / "base.toml", tmp_path / "more.toml"]
    resolved = resolve(RecipeConfig, files=files, overrides=["--trainer.optimizer.lr", "1e-6"])
    assert resolved.config.trainer.model == Path("b")
    assert resolved.config.trainer.group_size == 4
    assert resolved.config.trainer.optimizer.lr == 1e-6
    assert resolved.origins["trainer.group_size"] is Origin.FILE
    assert resolved.origins["trainer.optimizer.lr"] is Origin.OVERRIDE
    assert resolved.origins["trainer.optimizer.betas"] is Origin.DEFAULT
    assert resolved.sources["trainer.model"] == "more.toml"
    assert "trainer.optimizer.lr = 1e-06  # --trainer.optimizer.lr" in [
        " ".join(line.split()).replace(" #", "  #") for line in resolved.lines(changed_only=True)
    ]
    assert set(resolved.origins) == set(resolved.values())


@pytest.mark.parametrize("words", [["--seed", "7"], ["--seed=7"], ["seed=7"]])
def test_three_spellings_of_an_override_mean_the_same(words: list[str]) -> None:
    assert resolve(RecipeConfig, overrides=[*MODEL, *words]).config.seed == 7


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("name=12", "name", "12"),
        ("name=true", "name", "true"),
        ('name="a"', "name", '"a"'),
        ("seed=none", "seed", None),
        ("trainer.group_size=1e1", "trainer.group_size", 10),
        ("trainer.optimizer.lr=1", "trainer.optimizer.lr", 1.0),
        ("trainer.optimizer.betas=0.1,0.2", "trainer.optimizer.betas", [0.1, 0.2]),
        ("trainer.optimizer.betas=[0.1, 0.2]", "trainer.optimizer.betas", [0.1, 0.2]),
        ("tags=a,b", "tags", ["a", "b"]),
        ("mode=slow", "mode", "slow"),
        ("engine_arguments.mem=0.5", "engine_arguments.mem", 0.5),
        ("engine_arguments.deep.er=[1,2]", "engine_arguments.deep.er", [1, 2]),
        ("engine_arguments.word=flashinfer", "engine_arguments.word", "flashinfer"),
    ],
)
def test_a_value_is_read_by_the_type_of_its_field(word: str, path: str, value: object) -> None:
    assert resolve(RecipeConfig, overrides=[*MODEL, word]).values()[path] == value


def test_a_bare_flag_is_true_and_does_not_eat_the_next_flag() -> None:
    words = [*MODEL, "--trainer.algorithm.type=rloo", "--trainer.algorithm.leave_out", "--seed", "1"]
    resolved = resolve(RecipeConfig, overrides=words)
    assert resolved.config.seed == 1
    assert isinstance(resolved.config.trainer.algorithm, RlooConfig)
    assert resolved.config.trainer.algorithm.leave_out is True


def test_part_of_a_tagged_default_can_be_overridden() -> None:
    resolved = resolve(RecipeConfig, overrides=[*MODEL, "--trainer.algorithm.clip", "0.3"])
    assert resolved.config.trainer.algorithm == GrpoConfig(clip=0.3)


def test_a_table_of_models_takes_overrides_under_any_name() -> None:
    words = [*MODEL, "policies.a-b.model=x", "policies.a-b.optimizer.lr=1e-6"]
    policies = resolve(RecipeConfig, overrides=words).config.policies
    assert policies["a-b"].optimizer.lr == 1e-6


def test_an_entry_of_a_list_of_tables_is_overridden_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[trainer]\nmodel = "m"\n[[stages]]\nlr = 1.0\n[[stages]]\nlr = 2.0\n')
    files = (tmp_path / "r.toml",)
    resolved = resolve(RecipeConfig, files=files, overrides=["--stages.1.lr", "3"])
    assert [stage.lr for stage in resolved.config.stages] == [1.0, 3.0]
    assert resolved.origins["stages.1.lr"] is Origin.OVERRIDE
    assert resolved.origins["stages.0.lr"] is Origin.FILE
    assert "has 2 entries, counted from 0, and none is '2'" in refusal("--stages.2.lr", "3", files=files)
    assert "did you mean stages.0.lr?" in refusal("--stages.0.lrr", "3", files=files)


def test_an_unknown_key_is_named_with_value_origin_and_nearest_key(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[trainer]\nmodel = "m"\n[trainer.optimizer]\nlrr = 0.5\n')
    message = refusal(files=(tmp_path / "r.toml",))
    assert message.startswith("trainer.optimizer.lrr = 0.5 (r.toml): unknown key; did you mean trainer.optimizer.lr?")
    assert "betas, lr" in message


def test_an_override_in_the_wrong_table_is_sent_to_the_right_one() -> None:
    assert "did you mean trainer.optimizer.lr?" in refusal(*MODEL, "--lr", "1")


def test_an_unknown_key_below_a_table_of_models_or_a_list_is_found(tmp_path: Path) -> None:
    assert "did you mean policies.a.optimizer?" in refusal(*MODEL, "policies.a.model=x", "policies.a.optimzer.lr=1")
    (tmp_path / "r.toml").write_text('[trainer]\nmodel = "m"\n[[stages]]\nlr = 1.0\nbeta = [1.0, 1.0]\n')
    assert "stages.0.beta = " in refusal(files=(tmp_path / "r.toml",))


def test_a_key_of_another_member_of_a_tagged_union_says_so() -> None:
    message = refusal(*MODEL, "trainer.algorithm.leave_out=false")
    assert 'it belongs to trainer.algorithm with type = "rloo"' in message


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("trainer.optimizer.lr=abc", 'trainer.optimizer.lr = "abc" (--trainer.optimizer.lr): expected a number'),
        (
            "trainer.optimizer.lr=inf",
            "trainer.optimizer.lr = Infinity (--trainer.optimizer.lr): expected a finite number",
        ),
        ("trainer.optimizer.lr=nan", "trainer.optimizer.lr = NaN (--trainer.optimizer.lr): expected a finite number"),
        ("trainer.group_size=0", "trainer.group_size = 0 (--trainer.group_size): expected greater than or equal to 1"),
        ("trainer.group_size=true", "trainer.group_size = true (--trainer.group_size): expected a whole number"),
        ("seed=1.5", "seed = 1.5 (--seed): expected a whole number"),
        ("mode=idle", "mode = \"idle\" (--mode): expected one of 'fast' or 'slow'"),
        ("trainer.algorithm.type=ppo", 'trainer.algorithm.type = "ppo" (--trainer.algorithm.type): expected one of'),
        ("trainer.group_size=1", "trainer (--trainer.group_size): group_size must be at least 2 with grpo, got 1"),
        ("stages=3", "stages = 3 (--stages): expected a list"),
    ],
)
def test_a_wrong_value_says_what_was_expected(word: str, expected: str) -> None:
    assert refusal(*MODEL, word).startswith(expected)


def test_text_is_not_a_number_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[trainer]\nmodel = "m"\ngroup_size = "8"\n')
    assert refusal(files=(tmp_path / "r.toml",)) == 'trainer.group_size = "8" (r.toml): expected a whole number'


def test_every_mistake_is_reported_at_once() -> None:
    message = refusal(*MODEL, "trainer.optimizer.lr=abc", "mode=idle", "seed=x")
    assert message.startswith("3 settings are wrong:")


def test_a_missing_table_names_the_key_to_set() -> None:
    assert refusal() == (
        "trainer.model is missing and has no default: set it in the recipe or with --trainer.model VALUE"
    )


def test_a_stray_word_is_refused() -> None:
    assert "expected `--key value` or `key=value`, got 'stray'" in refusal("stray")


def test_unreadable_recipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("a = = 1")
    assert "bad.toml is not valid TOML" in refusal(files=(tmp_path / "bad.toml",))
    assert "cannot read the recipe" in refusal(files=(tmp_path / "none.toml",))


def test_the_resolved_settings_read_back_to_themselves(tmp_path: Path) -> None:
    first = resolve(RecipeConfig, overrides=[*MODEL, "policies.a.model=x", "seed=3", "tags=a,b"])
    (tmp_path / "resolved.json").write_text(first.json())
    assert resolve(RecipeConfig, files=[tmp_path / "resolved.json"]).config == first.config
    assert load_toml(tmp_path / "resolved.json") == json.loads(first.json())


@given(st.floats(min_value=1e-12, max_value=1e12), st.integers(), st.text(st.characters(codec="ascii"), max_size=20))
def test_any_value_survives_its_spelling(lr: float, seed: int, name: str) -> None:
    words = [*MODEL, f"trainer.optimizer.lr={lr!r}", f"seed={seed}", f"name={name}"]
    config = resolve(RecipeConfig, overrides=words).config
    assert config.trainer.optimizer.lr == lr
    assert config.seed == seed
    assert config.name == name
