from pathlib import Path

import pytest

from agar.errors import ConfigError
from agar.examples import stages
from agar.ledger.families import family_for
from agar.recipe.start import WARM_UP


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
