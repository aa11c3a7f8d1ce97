"""Wrappers keep what is inside awaitable, and are Gymnasium's."""

import asyncio
import threading

import gymnasium
import pytest

from agar.envs.runner import as_async
from agar.envs.wrappers import Record, ShapeReward, TruncateObservation, TurnLimit, Wrapper
from agar.envs.wrappers.base import awaitable
from agar.types import Turn


class Shout(Wrapper):
    def on_reset(self, result, options):
        return result[0].upper(), result[1]

    def on_step(self, action, result):
        assert isinstance(action, Turn)
        return (result[0].upper(), *result[1:])


def test_the_hooks_are_called_by_reset_and_step(env):
    wrapped = Shout(env)
    assert isinstance(wrapped, gymnasium.Wrapper)
    assert wrapped.unwrapped is env
    assert wrapped.reset(seed=1)[0] == "TURN"
    assert wrapped.step("hello")[0] == "TURN 1"
    assert wrapped.action_space == env.action_space


async def test_the_hooks_are_called_when_it_is_played(env, play):
    first, results = await play(Shout(TurnLimit(env, max_turns=2)), "a", "b", "c")
    assert first == "TURN"
    assert [result[0][0].text for result in results] == ["TURN 1", "TURN 2"]
    assert results[-1][3:] == (True, {"truncated_by": "max_turns"})


async def test_what_can_be_awaited_inside_is_awaited_on_the_callers_loop(env):
    class Where(Wrapper):
        def on_step(self, action, result):
            self.thread = threading.current_thread()
            return result

    wrapped = Where(Shout(env))
    assert (awaitable(wrapped) is wrapped) == (awaitable(env) is env)
    assert awaitable(gymnasium.wrappers.TimeLimit(env, 3)) is None
    async with as_async(wrapped) as runner:
        await runner.areset()
        await runner.astep("x")
    assert (wrapped.thread is threading.main_thread()) == (awaitable(env) is env)
    if awaitable(env) is env:
        assert env.released >= 2


async def test_wrappers_of_both_kinds_mix(env, play, tmp_path):
    mixed = Record(gymnasium.wrappers.TimeLimit(ShapeReward(env, lambda turn, result: 0.5), 3), tmp_path / "log.jsonl")
    first, results = await play(mixed, *"abcd")
    assert (first, len(results)) == ("turn", 3)
    assert results[-1][1:4] == (0.5, False, True)
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1


async def test_two_wrapped_environments_step_at_the_same_time(env):
    runners = [as_async(TruncateObservation(Shout(type(env)()), max_chars=3)) for _ in range(2)]
    await asyncio.gather(*(runner.areset() for runner in runners))
    results = await asyncio.gather(*(runner.astep("x") for runner in runners))
    assert [result[0][0].text.splitlines()[0] for result in results] == ["TUR", "TUR"]
    await asyncio.gather(*(runner.aclose() for runner in runners))


@pytest.mark.parametrize(
    ("wrap", "complaint"),
    [
        (lambda env: TurnLimit(env, max_turns=0), "max_turns must be at least 1"),
        (lambda env: TruncateObservation(env, max_chars=0), "max_chars must be at least 1"),
        (lambda env: TruncateObservation(env, max_chars=9, keep="middle"), "keep"),
    ],
)
def test_impossible_settings_are_refused(env, wrap, complaint):
    with pytest.raises(ValueError, match=complaint):
        wrap(env)
