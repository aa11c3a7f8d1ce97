"""One question, one answer, one reward."""

import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

from agar.envs.registry import make, register
from agar.envs.runner import as_async
from agar.envs.single_turn import SingleTurnEnv
from agar.envs.tasks import GeneratedTasks
from agar.errors import ConfigError, EnvError
from agar.types import Message, Reward, TaskRow, Turn


class Upper(SingleTurnEnv):
    def grade(self, action):
        return float(action.text == self.task.prompt.upper())


class Parts(SingleTurnEnv):
    def ask(self):
        return [Message(role="system", content="Shout."), Message(role="user", content=self.task.prompt)]

    async def grade(self, action):
        return Reward(total=0.75, parts={"loud": 1.0, "short": 0.5})


def words(split):
    return GeneratedTasks(lambda i: TaskRow(key=f"{split}/{i}", prompt="abc"[i], split=split), size=3)


async def test_a_task_is_asked_and_the_answer_ends_it():
    async with as_async(Upper()) as env:
        question, _ = await env.areset(options={"task": TaskRow(key="t", prompt="yes")})
        assert [message.text for message in question] == ["yes"]
        assert await env.astep("YES") == ([], 1.0, True, False, {})


async def test_a_graded_reward_keeps_its_parts_and_may_be_awaited():
    async with as_async(Parts()) as env:
        question, _ = await env.areset(options={"task": TaskRow(key="t", prompt="yes")})
        assert [message.role for message in question] == ["system", "user"]
        _, reward, terminated, _, info = await env.astep(Turn(text="YES"))
        assert (reward, terminated, info["reward_parts"]) == (0.75, True, {"loud": 1.0, "short": 0.5})


def test_without_a_task_one_of_the_train_split_is_drawn_by_the_seed():
    register("Upper-v0", Upper, tasks=words)
    env = make("Upper-v0")
    assert len({env.reset(seed=seed)[0] for seed in range(20)}) == 3
    assert env.reset(seed=4)[0] == env.reset(seed=4)[0]
    gymnasium_check(env)
    env.close()


async def test_an_environment_without_a_task_set_says_so_and_a_bad_grade_is_named():
    with pytest.raises(ConfigError, match="no task set to draw from"):
        Upper().reset(seed=1)

    class Word(Upper):
        def grade(self, action):
            return "good"

    async with as_async(Word()) as env:
        await env.areset(options={"task": TaskRow(key="t")})
        with pytest.raises(EnvError, match="reward 'good'"):
            await env.astep("x")
