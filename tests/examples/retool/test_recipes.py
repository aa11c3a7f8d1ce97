import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agar.config import resolve
from agar.examples import stages
from agar.examples.retool import run
from agar.ledger.families import family_for
from agar.recipe.config import Recipe
from agar.recipe.start.transcripts import texts
from agar.rollout.sources.demonstrations import Demonstrations


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stages.make_for(run.SFT, tmp_path_factory.mktemp("start"), seed=1)


def recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    return resolve(Recipe, files=[path], overrides=overrides).config


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("path", "command"), [(run.SFT, "sft"), (run.TINY, "train"), (run.CONFIG, "train")])
def test_the_recipes_pass_every_check(
    start: Path, named_model: Callable[[Path], Path], tmp_path: Path, path: Path, command: str
) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text(json.dumps({"prompt": "1 + 1?", "answer": "2"}) + "\n")
    words = [f"--policies.main.model={named_model(path) if path == run.CONFIG else start}"]
    if path == run.CONFIG:
        words += [f"--tasks.0.path={problems}", f"--evaluate.0.path={problems}"]
    recipe(path, words).check(command)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [run.SFT, run.TINY])
def test_the_learning_rate_falls_until_the_last_step(path: Path) -> None:
    settings = recipe(path)
    assert settings.policies["main"].schedule.total_steps == settings.run.steps


def test_held_out_problems_are_enough_for_the_claim_and_the_audit_is_strict() -> None:
    settings = recipe(run.TINY)
    [evaluation] = settings.evaluate
    assert (evaluation.split, evaluation.tasks, evaluation.sampling.temperature) == ("heldout", 128, 1.0)
    assert settings.ledger.audit == "strict"


def test_an_episode_is_short(start: Path) -> None:
    demonstrations = recipe(run.SFT).demonstrations
    assert demonstrations is not None
    tokenizer = family_for(start).tokenizer
    longest = max(len(tokenizer.encode(text, special=True)) for text in texts(demonstrations, episodes=100))
    assert longest <= 150


async def test_demonstrations_are_clean_first_and_mostly_failures_later(start: Path) -> None:
    settings = recipe(run.SFT, ["--demonstrations.trajectories_per_step=200"])
    assert settings.demonstrations is not None
    source = Demonstrations(settings.demonstrations, family=family_for(start), steps=settings.run.steps, seed=1)
    async with source.running(settings.run.steps):
        first = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
        source.load_state(b'{"next": 200}')
        later = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
    assert first == 1.0
    assert 0.1 < later < 0.4
