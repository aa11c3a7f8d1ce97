"""Our pool does what Gymnasium's vector environments do, and waits for all at once."""

import asyncio

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import agar
from agar.envs.registry import register
from agar.envs.vector import make_vec
from agar.errors import ConfigError
from agar.types import Message, Outcome


class Dice(agar.Env):
    """Ends when its own dice say so; every observation and info tells what was drawn."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turns = 0
        return [Message(role="user", content=f"start {self.np_random.integers(100)}")], {"start": True}

    def step(self, action):
        self.turns += 1
        drawn = int(self.np_random.integers(6))
        observation = [Message(role="user", content=f"{action.text} {drawn}")]
        return observation, float(drawn), drawn == 0, self.turns == 4, {"drawn": drawn, "nest": {"turns": self.turns}}


class Slow(agar.AsyncEnv):
    inside = most = 0

    async def areset(self, *, seed=None, options=None):
        await super().areset(seed=seed, options=options)
        return "go", {}

    async def astep(self, action):
        Slow.inside += 1
        Slow.most = max(Slow.most, Slow.inside)
        await asyncio.sleep(0.2)
        Slow.inside -= 1
        if action.text == "fail":
            raise KeyError("lost")
        return action.text, 1.0, action.text == "end", False, {}


def same(ours, theirs):
    """Compare two infos, whose arrays may hold messages."""
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        if isinstance(value, dict):
            same(value, theirs[key])
        else:
            assert value.dtype == theirs[key].dtype
            assert list(value) == list(theirs[key]), key


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_autoreset_mode_gives_what_gymnasiums_own_gives(mode):
    register("Dice-v0", Dice)
    ours = make_vec("Dice-v0", 3, autoreset_mode=mode)
    theirs = SyncVectorEnv([Dice] * 3, autoreset_mode=mode)
    try:
        assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
        assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
        mine, expected = ours.reset(seed=7), theirs.reset(seed=7)
        assert mine[0] == expected[0]
        same(mine[1], expected[1])
        ends = 0
        for number in range(30):
            actions = tuple(agar.Turn(text=f"{number}.{index}") for index in range(3))
            mine, expected = ours.step(actions), theirs.step(actions)
            assert mine[0] == expected[0]
            for left, right in zip(mine[1:4], expected[1:4], strict=True):
                assert left.dtype == right.dtype
                assert np.array_equal(left, right)
            same(mine[4], expected[4])
            over = mine[2] | mine[3]
            ends += int(over.sum())
            if mode == AutoresetMode.DISABLED and over.any():
                mine, expected = (v.reset(seed=[1, 2, 3], options={"reset_mask": over}) for v in (ours, theirs))
                assert mine[0] == expected[0]
                same(mine[1], expected[1])
        assert ends > 5
    finally:
        ours.close()
        theirs.close()


def test_slow_environments_wait_together():
    register("Slow-v0", Slow)
    pool = make_vec("Slow-v0", 20)
    pool.reset(seed=1)
    pool.step(["x"] * 20)
    assert Slow.most == 20
    pool.close()


def test_one_that_fails_is_marked_and_starts_anew_beside_the_others():
    register("Slow-v0", Slow)
    pool = make_vec("Slow-v0", 2, autoreset_mode="NextStep")
    pool.reset(seed=1)
    observations, rewards, terminated, truncated, infos = pool.step(["fail", "x"])
    assert (list(rewards), list(terminated), list(truncated)) == ([0.0, 1.0], [False, False], [True, False])
    assert infos["failure"][0] is Outcome.ENV_ERROR
    assert "KeyError" in infos["failure_reason"][0]
    assert list(infos["_failure"]) == [True, False]
    observations, *_ = pool.step(["ignored", "y"])
    assert [observation[0].text for observation in observations] == ["go", "y"]
    pool.close()


def test_the_registered_turn_limit_applies():
    pool = make_vec("Guess-v0", 2)
    pool.reset(seed=3)
    for _ in range(7):
        assert not pool.step(["0", "0"])[3].any()
    assert pool.step(["0", "0"])[3].all()
    pool.close()


def test_mistakes_of_the_caller_are_named():
    with pytest.raises(ConfigError, match="num_envs must be at least 1"):
        make_vec("Guess-v0", 0)
    pool = make_vec("Guess-v0", 2, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(ConfigError, match=r"episodes of \[0, 1\] are over"):
        pool.step(["1", "2"])
    with pytest.raises(ConfigError, match="expected 2 seeds"):
        pool.reset(seed=[1, 2, 3])
    pool.reset(seed=1)
    with pytest.raises(ConfigError, match="expected 2 actions, got 1"):
        pool.step(["1"])
    pool.close()
    pool.close()
    with pytest.raises(ConfigError, match="is closed"):
        pool.reset(seed=1)


def test_it_is_one_of_gymnasiums():
    pool = make_vec("Guess-v0", 2)
    assert isinstance(pool, gymnasium.vector.VectorEnv)
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(pool)
    wrapped.reset(seed=1)
    wrapped.step(["1", "2"])
    wrapped.close()
