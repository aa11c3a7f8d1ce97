"""A sample of reasoning-gym's data sets; `make verify` plays all of them."""

import subprocess
import sys

import pytest

from agar.envs.checker import check_env
from agar.envs.checks.subject import Subject, gold, play
from agar.envs.registry import registered, spec
from agar.errors import ConfigError, EnvError
from agar.types import Turn

pytest.importorskip("reasoning_gym")

SAMPLE = ["leg_counting", "basic_arithmetic", "spell_backward", "propositional_logic", "graph_color", "word_ladder"]


@pytest.fixture(autouse=True)
def _registered():
    """The registry is put back after every test, and a module registers only when it is first imported."""
    sys.modules.pop("agar.envs.adapters.reasoning_gym", None)
    import agar.envs.adapters.reasoning_gym  # noqa: F401


@pytest.mark.parametrize("name", SAMPLE)
async def test_gold_scores_the_maximum_and_no_answer_little(name):
    world = Subject(id=f"reasoning_gym/{name}-v0")
    async with world.new() as runner:
        for split in ("train", "heldout"):
            for index in range(2):
                task = world.tasks(split)[index]
                assert (await play(runner, task, gold)).total == 1.0
                nothing = await play(runner, task, lambda runner, index: Turn())
                assert nothing.total < 0.1


def test_every_data_set_is_registered_and_one_is_fit_to_train_in():
    assert len([name for name in registered() if name.startswith("reasoning_gym/")]) >= 100
    report = check_env("reasoning_gym/leg_counting-v0")
    assert report.ok, str(report)


async def test_the_answer_is_read_from_its_tags_and_the_splits_differ():
    world = Subject(id="reasoning_gym/leg_counting-v0")
    async with world.new() as runner:
        train, heldout = world.tasks("train")[0], world.tasks("heldout")[0]
        first, _ = await runner.areset(options={"task": train})
        right = runner.env.gold().removeprefix("<answer>").removesuffix("</answer>")
        _, reward, terminated, _, _ = await runner.astep(f"<answer>0</answer>, no: <answer> {right} </answer>")
        assert (reward, terminated) == (1.0, True)
        await runner.areset(options={"task": train})
        assert (await runner.astep(right))[1] == 1.0
        other, _ = await runner.areset(options={"task": heldout})
        assert first != other


async def test_settings_that_a_data_set_does_not_take_are_named():
    from agar.envs.adapters.reasoning_gym import ReasoningTasks

    with pytest.raises(ConfigError, match="cannot make 'leg_counting'"):
        ReasoningTasks("X-v0", "leg_counting", {"wings": 2})("train")
    world = Subject(id="reasoning_gym/leg_counting-v0", kwargs={"config": {"max_animals": 3}})
    async with world.new() as runner:
        await runner.areset(options={"task": spec(world.id).tasks("train")[0]})
        assert (await runner.astep("nonsense"))[1] < 1.0
    async with Subject(id=world.id, kwargs={"config": {"wings": 2}}).new() as runner:
        with pytest.raises((ConfigError, EnvError), match="wings"):
            await runner.areset(options={"task": spec(world.id).tasks("train")[0]})


def test_without_the_package_the_extra_is_named():
    code = "import sys; sys.modules['reasoning_gym'] = None; import agar.envs.adapters.reasoning_gym"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert "pip install -e '.[gyms]'" in done.stderr
