from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agar.config import resolve
from agar.examples.coding_agent import run
from agar.ledger.families import family_for
from agar.recipe.config import Recipe
from agar.recipe.start.transcripts import texts
from agar.rollout.sources.demonstrations import Demonstrations


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.make(tmp_path_factory.mktemp("start"), 1)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    run.write_tasks(folder)
    run.write_tasks(folder)  # again, as a second run does
    return folder


def recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    return resolve(Recipe, files=[path], overrides=overrides).config


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("path", "command"), [(run.SFT, "sft"), (run.TINY, "train"), (run.CONFIG, "train")])
def test_the_recipes_pass_every_check(
    start: Path, named_model: Callable[[Path], Path], tasks: Path, path: Path, command: str
) -> None:
    model = named_model(path) if path == run.CONFIG else start
    words = [f"--policies.main.model={model}", *([f"--evaluate.0.path={tasks}"] if path == run.TINY else [])]
    recipe(path, words).check(command)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [run.SFT, run.TINY])
def test_the_learning_rate_falls_until_the_last_step(path: Path) -> None:
    settings = recipe(path)
    assert settings.policies["main"].schedule.total_steps == settings.run.steps


def test_held_out_folders_are_enough_for_the_claim(tasks: Path) -> None:
    [evaluation] = recipe(run.TINY).evaluate
    assert (evaluation.tasks, evaluation.sampling.temperature) == (run.HELDOUT, 1.0)
    assert len(list(tasks.glob("*/task.toml"))) == run.HELDOUT >= 50
    assert recipe(run.TINY).ledger.audit == "strict"


def test_an_episode_is_a_hundred_tokens_or_less(start: Path) -> None:
    demonstrations = recipe(run.SFT).demonstrations
    assert demonstrations is not None
    tokenizer = family_for(start).tokenizer
    assert max(len(tokenizer.encode(text, special=True)) for text in texts(demonstrations, episodes=30)) <= 100


@pytest.mark.sandbox
@pytest.mark.timeout(180)
async def test_demonstrations_are_clean_first_and_mostly_failures_later(start: Path) -> None:
    settings = recipe(run.SFT, ["--demonstrations.trajectories_per_step=40"])
    assert settings.demonstrations is not None
    config = settings.demonstrations.model_copy(update={"kwargs": {}})  # judged, in real sandboxes
    source = Demonstrations(config, family=family_for(start), steps=settings.run.steps, seed=1)
    async with source.running(settings.run.steps):
        first = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
        source.load_state(b'{"next": 200}')
        later = (await source.next_batch({})).metrics["demonstrations/reward_mean"]
    assert first == 1.0
    assert 0.0 < later < 0.5
