"""L5: episodes can be trained on, or the reason is named."""

import pytest

import agar
from agar.envs import registry
from agar.envs.library.guess import Guess
from agar.rollout.checker import acheck_trainable


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))


async def test_episodes_of_gold_and_of_chance_are_played_and_audited():
    check = await acheck_trainable("Calc-v0")
    assert check.ok, check
    assert (check.level, check.name, check.skipped) == ("L5", "trainable", False)
    assert check.message.startswith("32 episodes (32 completed)")
    assert "8 of 8 groups with different rewards; every invariant holds" in check.message


async def test_an_environment_that_fails_in_play_is_named():
    class Fails(Guess):
        def step(self, action):
            raise KeyError("lost")

    agar.register("Fails-v0", Fails, max_turns=8)
    check = await acheck_trainable("Fails-v0")
    assert not check.ok
    assert check.message.startswith(
        "32 of 32 episodes are excluded from training (env_error: Fails-v0.step raised KeyE"
    )
