"""An environment graded by a rubric on top of its own reward."""

import pytest
from gymnasium.utils.env_checker import check_env

from agar.envs.base import Env
from agar.envs.graded import GradedEnv
from agar.envs.library.guess import Guess
from agar.envs.registry import make
from agar.envs.rubric import Criterion, Rubric
from agar.envs.runner import as_async
from agar.errors import EnvError
from agar.types import Outcome, TaskRow, ToolSpec, Turn

RUBRIC = Rubric([
    Criterion(name="brief", score=lambda told: len(told.reply) < 5, weight=0.1, stage="turn"),
    Criterion(name="turns", score=lambda told: sum(m.role == "assistant" for m in told.messages), weight=-0.5),
])  # fmt: skip


class Countdown(Env):
    """Ends at the third turn, with a reward and a part of its own."""

    closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return "Say something.", {}

    def step(self, action):
        self.left -= 1
        info = {"failure": Outcome.INFRA_ERROR} if action.text == "fail" else {"reward_parts": {"own": 2.0}}
        return f"{self.left} left", 1.0, self.left == 0, False, info

    def close(self):
        self.closed += 1

    @property
    def tools(self):
        return (ToolSpec(name="sh"),)


async def test_turns_and_the_whole_are_graded_and_the_own_reward_stays():
    async with as_async(GradedEnv(Countdown(), RUBRIC)) as env:
        assert [spec.name for spec in env.tools] == ["sh"]
        for _ in range(2):  # a second episode starts anew
            messages, _ = await env.areset(seed=1, options={"task": TaskRow(key="k")})
            assert messages[0].text == "Say something."
            seen = [await env.astep(text) for text in ("abc", "long words", "end")]
            assert [step[1] for step in seen] == pytest.approx([1.1, 1.0, 1.1 - 1.5])
            assert [step[4]["reward_parts"] for step in seen] == [
                {"own": 2.0, "brief": 1.0}, {"own": 2.0, "brief": 0.0}, {"own": 2.0, "brief": 1.0, "turns": 3.0},
            ]  # fmt: skip
            assert [step[2] for step in seen] == [False, False, True]


async def test_a_failed_step_is_not_graded():
    async with as_async(GradedEnv(Countdown(), RUBRIC)) as env:
        await env.areset(seed=1)
        _, reward, _, _, info = await env.astep("fail")
        assert (reward, info.get("reward_parts")) == (1.0, None)


async def test_a_reward_that_raises_fails_the_step():
    def boom(told):
        raise KeyError("x")

    async with as_async(GradedEnv(Countdown(), Rubric([Criterion(name="it", score=boom, stage="turn")]))) as env:
        await env.areset(seed=1)
        with pytest.raises(EnvError, match="reward 'it' raised KeyError"):
            await env.astep("a")


async def test_the_turn_limit_inside_ends_the_episode_and_grades_it():
    async with as_async(GradedEnv(make("Guess-v0"), RUBRIC)) as env:
        await env.areset(seed=7)
        for _ in range(8):
            _, reward, _, truncated, info = await env.astep("0")
        assert truncated
        assert info["reward_parts"]["turns"] == 8.0
        assert reward == pytest.approx(0.1 - 4.0)


def test_it_is_a_gymnasium_environment():
    env = GradedEnv(Guess(), RUBRIC)
    check_env(env, skip_render_check=True)
    env.close()


def test_closing_closes_what_is_inside():
    inside = Countdown()
    env = GradedEnv(inside, RUBRIC)
    env.reset(seed=1)
    env.close()
    assert inside.closed == 1


async def test_criteria_see_the_environments_info():
    rubric = Rubric([Criterion(name="own", score=lambda told: told.meta["reward_parts"]["own"], stage="turn")])
    async with as_async(GradedEnv(Countdown(), rubric)) as env:
        await env.areset(seed=1)
        assert (await env.astep("a"))[1] == 3.0


def test_closing_it_as_gymnasium_does_names_what_could_not_be_closed():
    class Unclosable(Countdown):
        def close(self):
            raise ValueError("stuck")

    env = GradedEnv(Unclosable(), RUBRIC)
    env.reset(seed=1)
    with pytest.raises(EnvError, match=r"Unclosable\.close raised ValueError: stuck"):
        env.close()
    env.close()


async def test_the_gold_of_what_is_graded_is_its_own():
    async with as_async(GradedEnv(Guess(), RUBRIC)) as env:
        await env.areset(seed=1)
        assert await env.agold() == Turn.of(env.env.env.gold())
