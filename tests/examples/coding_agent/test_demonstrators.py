"""The scripted menders see what a model sees; one always mends, one mostly does not."""

import numpy as np
import pytest

from agar.agents.scripted import ScriptedAgent
from agar.envs.registry import make, spec
from agar.envs.runner import as_async
from agar.errors import ConfigError
from agar.examples.coding_agent.demonstrators import imperfect_mender, mender
from agar.types import Turn

HELDOUT = 64
"""As many as the recipe evaluates."""
SMALL = "agar.examples.coding_agent.env:RepairSmall-v0"


async def rewards(policy, count: int) -> list[float]:
    tasks = spec(SMALL).tasks("heldout")
    async with as_async(make(SMALL)) as runner:
        return [(await ScriptedAgent(policy, seed=1).transcript(runner, tasks[index])).reward for index in range(count)]


@pytest.mark.sandbox
async def test_the_mender_always_mends_and_who_does_nothing_never_does() -> None:
    assert await rewards(mender, HELDOUT) == [1.0] * HELDOUT
    assert await rewards(lambda *_: Turn(text="Done."), HELDOUT) == [0.0] * HELDOUT


@pytest.mark.sandbox
async def test_the_imperfect_one_mostly_does_not() -> None:
    assert 0.02 < np.mean(await rewards(imperfect_mender(), 40)) < 0.45


async def test_without_faults_both_say_the_same() -> None:
    tasks = spec(SMALL).tasks("train")
    said = []
    for policy in (mender, imperfect_mender(give_up=0.0, mistake=0.0)):
        async with as_async(make(SMALL, sandbox={"backend": "fake"}, judged=False)) as runner:
            said.append([(await ScriptedAgent(policy).transcript(runner, tasks[index])).messages for index in range(5)])
    assert said[0] == said[1]


@pytest.mark.parametrize("faults", [{"give_up": 1.2}, {"mistake": -0.1}])
def test_faults_are_chances(faults: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be chances"):
        imperfect_mender(**faults)
