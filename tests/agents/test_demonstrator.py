"""Demonstrator: gold turns, and mistakes that are right elsewhere."""

import pytest

from agar.agents.demonstrator import Demonstrator
from agar.envs.base import Env
from agar.envs.registry import make, spec
from agar.envs.runner import as_async
from agar.errors import ConfigError


def player(env: str, **settings) -> Demonstrator:
    return Demonstrator(tasks=spec(env).tasks("train"), **settings)


async def played(env: str, count: int = 20, **settings):
    agent, tasks = player(env, **settings), spec(env).tasks("heldout")
    async with as_async(make(env)) as runner:
        return [await agent.transcript(runner, tasks[index]) for index in range(count)]


@pytest.mark.parametrize("env", ["Guess-v0", "Calc-v0", "Words-v0", "Fill-v0", "Keys-v0", "Sql-v0", "Question-v0"])
async def test_without_mistakes_it_earns_everything(env):
    assert [transcript.reward for transcript in await played(env, 5)] == [1.0] * 5


async def test_every_turn_is_a_mistake_where_it_always_errs():
    transcripts = await played("Question-v0", err=1.0)
    assert sum(transcript.reward for transcript in transcripts) <= 2  # another sum may come to the same
    assert all(transcript.messages[-1].text.isdigit() for transcript in transcripts if transcript.reward == 0)


async def test_mistakes_are_as_frequent_as_it_is_told():
    rewards = [transcript.reward for transcript in await played("Question-v0", 200, err=0.5)]
    assert 0.38 < sum(rewards) / 200 < 0.65


async def test_an_attempt_at_a_task_is_the_same_each_time():
    first, again, other = [await played("Words-v0", 3, err=0.5, seed=seed) for seed in (1, 1, 2)]
    assert [t.messages for t in first] == [t.messages for t in again]
    assert [t.messages for t in first] != [t.messages for t in other]


async def test_an_environment_without_gold_is_refused_with_what_to_write():
    class Silent(Env):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return "say", {}

        def step(self, action):
            return "", 0.0, True, False, {}

    async with as_async(Silent()) as runner:
        with pytest.raises(ConfigError, match=r"no gold\(\)"):
            await player("Guess-v0").transcript(runner, spec("Guess-v0").tasks("train")[0])


@pytest.mark.parametrize("err", [-0.1, 1.1])
def test_what_is_no_chance_is_refused(err):
    with pytest.raises(ConfigError, match="err must be a chance"):
        player("Guess-v0", err=err)
