"""The recipes, and what the warm-up imitates."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agar.config import resolve
from agar.examples.search_r1 import run
from agar.ledger.families import family_for
from agar.recipe.config import Recipe
from agar.recipe.start.transcripts import texts
from agar.rollout.sources.demonstrations import Demonstrations

SMOLLM2 = run.HERE / "smollm2.toml"

pytestmark = pytest.mark.timeout(180)  # the first one to ask makes the corpora


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.make(tmp_path_factory.mktemp("start"), 1)


def recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    return resolve(Recipe, files=[path], overrides=overrides).config


@pytest.mark.parametrize(
    ("path", "command"), [(run.SFT, "sft"), (run.TINY, "train"), (run.CONFIG, "train"), (SMOLLM2, "train")]
)
def test_the_recipes_pass_every_check(
    start: Path, named_model: Callable[[Path], Path], tmp_path: Path, path: Path, command: str
) -> None:
    asked = tmp_path / "questions.jsonl"
    asked.write_text(json.dumps({"question": "When did the Mary Rose sink?", "golden_answers": ["1545"]}) + "\n")
    words = [f"--policies.main.model={named_model(path) if path == run.CONFIG else start}"]
    if path == run.CONFIG:
        words += [f"--tasks.0.path={asked}", f"--evaluate.0.path={asked}"]
    recipe(path, words).check(command)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [run.SFT, run.TINY])
def test_the_learning_rate_falls_until_the_last_step(path: Path) -> None:
    settings = recipe(path)
    assert settings.policies["main"].schedule.total_steps == settings.run.steps


def test_held_out_questions_are_enough_for_the_claim_and_the_audit_is_strict() -> None:
    settings = recipe(run.TINY)
    [evaluation] = settings.evaluate
    assert (evaluation.split, evaluation.tasks, evaluation.sampling.temperature) == ("heldout", 128, 1.0)
    assert settings.ledger.audit == "strict"


def test_an_episode_is_short_and_every_name_in_it_one_token(start: Path) -> None:
    demonstrations = recipe(run.SFT).demonstrations
    assert demonstrations is not None
    tokenizer = family_for(start).tokenizer
    played = texts(demonstrations, episodes=60)
    assert max(len(tokenizer.encode(text, special=True)) for text in played) <= 150
    assert all(len(tokenizer.encode(f"`{name}`")) == 1 for name in ("webbrowser", "contextlib", "nullcontext"))


async def test_demonstrations_are_clean_first_and_mostly_failures_later(start: Path) -> None:
    settings = recipe(run.SFT, ["--demonstrations.trajectories_per_step=100"])
    assert settings.demonstrations is not None
    source = Demonstrations(settings.demonstrations, family=family_for(start), steps=settings.run.steps, seed=1)
    async with source.running(settings.run.steps):
        first = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
        source.load_state(json.dumps({"next": settings.run.steps - 20}).encode())
        later = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
    assert first >= 0.98  # one invented passage in 130 is cut, as it is shown, before the module that stands last
    assert 0.1 < later < 0.45
