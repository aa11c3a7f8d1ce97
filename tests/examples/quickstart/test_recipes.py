import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agar.config import resolve
from agar.examples.quickstart.run import SFT, TRAIN
from agar.ledger.families import family_for
from agar.recipe.config import Recipe
from agar.rollout.sources.demonstrations import Demonstrations


def recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    return resolve(Recipe, files=[path], overrides=overrides).config


@pytest.mark.parametrize(("path", "command"), [(SFT, "sft"), (TRAIN, "train"), (TRAIN, "eval")])
def test_the_recipes_pass_every_check(starting_policy: Path, path: Path, command: str) -> None:
    recipe(path, [f"--policies.main.model={starting_policy}"]).check(command)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [SFT, TRAIN])
def test_the_learning_rate_falls_until_the_last_step(path: Path) -> None:
    settings = recipe(path)
    assert settings.policies["main"].schedule.total_steps == settings.run.steps


def test_held_out_hunts_are_enough_for_the_claim() -> None:
    [evaluation] = recipe(TRAIN).evaluate
    assert (evaluation.split, evaluation.tasks, evaluation.sampling.temperature) == ("heldout", 128, 1.0)


async def test_demonstrations_succeed_half_the_time_first_and_mostly_fail_later(starting_policy: Path) -> None:
    settings = recipe(SFT, ["--demonstrations.trajectories_per_step=200"])
    assert settings.demonstrations is not None
    family = family_for(starting_policy)
    source = Demonstrations(settings.demonstrations, family=family, steps=settings.run.steps, seed=1)
    async with source.running():
        first = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
        source.load_state(json.dumps({"next": settings.run.steps - 50}).encode())
        later = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
    assert 0.4 < first < 0.7  # both endings of a hunt are seen from the first
    assert 0.15 < later < 0.4
