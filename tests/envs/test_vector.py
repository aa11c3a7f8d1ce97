"""Our pool does what Gymnasium's vector environments do, and waits for all at once."""

import asyncio
import gc
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import agar
from agar.envs.registry import register
from agar.envs.vector import make_vec
from agar.errors import ConfigError, EngineError, EnvError, ToolError
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


FAULTS = {"fail": KeyError("lost"), "no tool": ToolError("lost"), "no judge": EngineError("lost")}


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
        if action.text in FAULTS:
            raise FAULTS[action.text]
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


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("fail", Outcome.ENV_ERROR, "KeyError"),
        ("no tool", Outcome.ENV_ERROR, "ToolError"),
        ("no judge", Outcome.INFRA_ERROR, "lost"),
    ],
)
def test_one_that_fails_is_marked_and_starts_anew_beside_the_others(fault, outcome, reason):
    register("Slow-v0", Slow)
    pool = make_vec("Slow-v0", 2, autoreset_mode="NextStep")
    pool.reset(seed=1)
    observations, rewards, terminated, truncated, infos = pool.step([fault, "x"])
    assert (list(rewards), list(terminated), list(truncated)) == ([0.0, 1.0], [False, False], [True, False])
    assert infos["failure"][0] is outcome
    assert reason in infos["failure_reason"][0]
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
    with pytest.raises(
        ConfigError, match="autoreset_mode must be one of 'NextStep', 'SameStep', 'Disabled', got 'same'"
    ):
        make_vec("Guess-v0", 2, autoreset_mode="same")
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


class Faulty(agar.AsyncEnv):
    """Fails in the way that it is told to, at the step that says so."""

    async def astep(self, action):
        match action.text:
            case "huge":
                return "", 10**400, True, False, {}
            case "cancel":
                raise asyncio.CancelledError
            case "exit":
                raise SystemExit(3)
        return "", 1.0, False, False, {}


@pytest.mark.parametrize("fault", ["huge", "cancel", "exit"])
def test_one_that_breaks_the_contract_or_would_end_the_loop_fails_alone(fault):
    register("Faulty-v0", Faulty)
    envs = make_vec("Faulty-v0", 3)
    envs.reset()
    _, rewards, _, truncated, infos = envs.step(["a", fault, "b"])
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert truncated.tolist() == [False, True, False]
    assert infos["failure"][1] is Outcome.ENV_ERROR
    envs.step(["a", "b", "c"])
    envs.close()


class Unclosable(Dice):
    made = 0

    def __init__(self):
        self.number, self.closed = Unclosable.made, False
        Unclosable.made += 1

    def close(self):
        if self.number == 0:
            raise ValueError("stuck")
        self.closed = True


def test_all_are_closed_though_one_raises_and_that_one_is_named():
    register("Unclosable-v0", Unclosable)
    envs = make_vec("Unclosable-v0", 3)
    envs.reset(seed=1)
    inside = envs.envs
    with pytest.raises(EnvError, match=r"Unclosable-v0\.close raised ValueError: stuck"):
        envs.close()
    assert [env.closed for env in inside] == [False, True, True]
    envs.close()


def test_one_that_nobody_holds_any_more_leaves_no_thread_behind():
    before = set(threading.enumerate())
    envs = make_vec("Guess-v0", 2)
    envs.reset(seed=1)
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert left
    del envs
    gc.collect()
    for thread in left:
        thread.join(20)
        assert not thread.is_alive()
