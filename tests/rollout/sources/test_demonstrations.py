import asyncio
import itertools
from collections import Counter

import numpy as np
import pytest
from pydantic import ValidationError

from agar.envs.base import Env
from agar.envs.registry import register, spec
from agar.errors import ConfigError, DeadlineError, EnvError
from agar.ledger.families import Family, family_for
from agar.ledger.toy import write_toy_model
from agar.rollout.sources.config import DemonstrationsConfig, DemonstratorConfig
from agar.rollout.sources.demonstrations import Demonstrations, load_policy, phase_ends
from agar.types import Batch, Outcome, Sample, Source, Turn


class Counting(Env):
    """Says a number; three turns."""

    def __init__(self, *, slow_s=0.0, failing=False):
        self.slow_s, self.failing = slow_s, failing

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        return f"seed {seed}", {}

    def step(self, action):
        if self.failing:
            return "", 0.0, False, True, {"failure": Outcome.INFRA_ERROR, "error": "the disk is gone"}
        if self.slow_s:
            import time

            time.sleep(self.slow_s)
        self.left -= 1
        return f"{self.left} left", float(action.text == "yes"), self.left == 0, False, {}


def say_yes(messages, tools, rng):
    return "yes"


def waver(*, share):
    return lambda messages, tools, rng: Turn(text="yes" if rng.random() < share else "no")


def wants_nothing():
    return "not a policy"


ME = __name__


@pytest.fixture(scope="module", autouse=True)
def counting() -> None:
    register("CountingForDemonstrations-v0", Counting)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return family_for(write_toy_model(tmp_path_factory.mktemp("model")))


def settings(**changes) -> DemonstrationsConfig:
    values = {
        "env": "CountingForDemonstrations-v0",
        "phases": [
            {"share": 0.6, "agents": [{"policy": f"{ME}:say_yes"}]},
            {"share": 0.4, "agents": [{"policy": f"{ME}:waver", "kwargs": {"share": 0.5}}]},
        ],
        "trajectories_per_step": 4,
        "distinct": 6,
    }
    return DemonstrationsConfig(**(values | changes))


async def take(source: Demonstrations, count: int) -> list[Batch]:
    async with source.running():
        return [await source.next_batch({"main": 0}) for _ in range(count)]


def ids(batches: list[Batch]) -> list[list[list[int]]]:
    return [[sample.token_ids.tolist() for sample in batch.samples] for batch in batches]


def names(batches: list[Batch]) -> list[str]:
    return [sample.trajectory for batch in batches for sample in batch.samples]


async def test_only_what_the_agent_said_is_taught(family: Family) -> None:
    [batch] = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 1)
    for sample in batch.samples:
        end = "<|im_end|>"
        assert family.tokenizer.decode(sample.token_ids[sample.loss_mask]) == f"yes{end}" * 3
        assert (sample.source[sample.loss_mask] == Source.DEMONSTRATION).all()
        assert (sample.source[~sample.loss_mask] == Source.CONTEXT).all()
        assert sample.oldest_version is None
        assert (sample.logprobs == 0).all()
        assert sample.weight == 1.0


async def test_the_conversation_ends_with_the_agents_last_turn(family: Family) -> None:
    [batch] = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 1)
    text = family.tokenizer.decode(batch.samples[0].token_ids)
    assert text.rstrip().endswith("yes<|im_end|>")
    assert "1 left" in text
    assert "0 left" not in text


async def test_the_reward_stands_on_the_last_taught_token(family: Family) -> None:
    [batch] = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 1)
    for sample in batch.samples:
        assert sample.reward == 3.0
        assert np.flatnonzero(sample.rewards).tolist() == [np.flatnonzero(sample.loss_mask)[-1]]


async def test_a_seed_fixes_every_batch(family: Family) -> None:
    first = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 10)
    again = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 10)
    other = await take(Demonstrations(settings(), family=family, steps=10, seed=2), 10)
    assert ids(first) == ids(again)
    assert names(first) == names(again)
    assert ids(first) != ids(other)


async def test_a_resumed_source_goes_on_where_it_stood(family: Family) -> None:
    whole = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 10)
    source = Demonstrations(settings(), family=family, steps=10, seed=1)
    await take(source, 4)
    resumed = Demonstrations(settings(), family=family, steps=10, seed=1)
    resumed.load_state(source.state())
    rest = await take(resumed, 6)
    assert ids(whole[4:]) == ids(rest)
    assert names(whole[4:]) == names(rest)


async def test_leaving_and_entering_again_loses_no_batch(family: Family) -> None:
    whole = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 6)
    source = Demonstrations(settings(), family=family, steps=10, seed=1)
    assert ids(await take(source, 2) + await take(source, 4)) == ids(whole)


async def test_phases_follow_their_shares_and_the_last_one_goes_on(family: Family) -> None:
    batches = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 12)
    assert [batch.metrics["demonstrations/phase"] for batch in batches] == [0.0] * 6 + [1.0] * 6
    assert [batch.metrics["demonstrations/reward_mean"] for batch in batches[:6]] == [3.0] * 6
    assert all(batch.metrics["demonstrations/reward_mean"] < 3.0 for batch in batches[6:])


async def test_an_epoch_uses_every_transcript_once_and_each_epoch_has_its_order(family: Family) -> None:
    source = Demonstrations(settings(trajectories_per_step=6, distinct=6), family=family, steps=100, seed=1)
    epochs = [[s.meta["transcript"] for s in batch.samples] for batch in await take(source, 3)]
    assert all(sorted(epoch) == list(range(6)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


async def test_no_trajectory_is_named_twice_although_transcripts_come_again(family: Family) -> None:
    named = names(await take(Demonstrations(settings(), family=family, steps=10, seed=1), 12))
    assert max(Counter(named).values()) == 1


async def test_agents_of_a_phase_share_it_by_weight(family: Family) -> None:
    agents = [{"policy": f"{ME}:say_yes", "weight": 3}, {"policy": f"{ME}:waver", "kwargs": {"share": 0.0}}]
    config = settings(phases=[{"agents": agents}], trajectories_per_step=200, distinct=200)
    [batch] = await take(Demonstrations(config, family=family, steps=1, seed=1), 1)
    share = np.mean([sample.reward == 3.0 for sample in batch.samples])
    assert 0.65 < share < 0.85


async def test_tasks_come_from_the_split(family: Family) -> None:
    config = settings(split="heldout")
    [batch] = await take(Demonstrations(config, family=family, steps=10, seed=1), 1)
    tasks = spec(config.env).tasks("heldout")
    seeds = {f"seed {tasks[index].payload['seed']}" for index in range(len(tasks))}

    def first(sample: Sample) -> str:
        return family.tokenizer.decode(sample.token_ids).split("user\n")[1].split("<|im_end|>")[0]

    assert {first(sample) for sample in batch.samples} <= seeds


async def test_an_episode_past_its_deadline_is_named(family: Family) -> None:
    config = settings(kwargs={"slow_s": 0.3}, episode_timeout_s=0.05)
    with pytest.raises(DeadlineError, match=r"CountingForDemonstrations-v0 train/.* longer than 0.05 s"):
        await take(Demonstrations(config, family=family, steps=10, seed=1), 1)


async def test_an_environment_that_fails_stops_the_run_with_its_reason(family: Family) -> None:
    config = settings(kwargs={"failing": True})
    with pytest.raises(EnvError, match="the disk is gone"):
        await take(Demonstrations(config, family=family, steps=10, seed=1), 1)


async def test_a_cancelled_wait_loses_no_batch(family: Family) -> None:
    whole = await take(Demonstrations(settings(), family=family, steps=10, seed=1), 3)
    source = Demonstrations(settings(kwargs={"slow_s": 0.02}), family=family, steps=10, seed=1)
    async with source.running():
        waiting = asyncio.create_task(source.next_batch({"main": 0}))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert ids([await source.next_batch({"main": 0}) for _ in range(3)]) == ids(whole)


async def test_nothing_is_left_running(family: Family) -> None:
    before = asyncio.all_tasks()
    await take(Demonstrations(settings(), family=family, steps=10, seed=1), 2)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("shares", "steps", "ends"),
    [([0.6, 0.4], 10, [6, 10]), ([1.0], 7, [7]), ([3.0, 1.0], 8, [6, 8]), ([1.0, 1.0, 1.0], 1, [0, 1, 1])],
)
def test_phase_ends_by_hand(shares: list[float], steps: int, ends: list[int]) -> None:
    assert phase_ends(shares, steps) == ends


def test_phase_ends_never_fall_and_end_at_the_last_step() -> None:
    for shares, steps in itertools.product([[0.1] * 10, [5.0, 0.01, 2.0], [1e-6, 1.0]], [1, 2, 9, 450]):
        ends = phase_ends(shares, steps)
        assert ends == sorted(ends)
        assert ends[-1] == steps


@pytest.mark.parametrize(
    ("policy", "kwargs", "message"),
    [
        ("nowhere.at_all:policy", {}, "was not found"),
        (f"{ME}:missing", {}, "was not found"),
        (f"{ME}:say_yes", {"share": 1}, "does not take"),
        (f"{ME}:waver", {}, "does not take"),
        (f"{ME}:waver", {"sure": 1}, "does not take"),
        (f"{ME}:wants_nothing", {}, "expected .messages, tools, rng."),
    ],
)
def test_a_policy_that_cannot_be_had_is_refused_by_name(policy: str, kwargs: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_policy(DemonstratorConfig(policy=policy, kwargs=kwargs))


def test_settings_name_a_policy_as_module_and_attribute() -> None:
    with pytest.raises(ValidationError, match="policy"):
        DemonstratorConfig(policy="just_a_name")


def test_a_run_without_steps_is_refused(family: Family) -> None:
    with pytest.raises(ConfigError, match="steps must be at least 1"):
        Demonstrations(settings(), family=family, steps=0, seed=1)


async def test_nothing_is_played_beyond_the_batches_that_are_wanted(family: Family) -> None:
    source = Demonstrations(settings(distinct=100), family=family, steps=10, seed=1)
    async with source.running(2):
        for _ in range(2):
            await source.next_batch({"main": 0})
        await asyncio.sleep(0.01)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("demonstration")]
