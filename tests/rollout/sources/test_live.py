"""Live batches: audited as the recipe says, kept before they are refused, admitted by publishes after a step."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from agar.envs.tasks import GeneratedTasks, TaskCursor
from agar.errors import AuditError
from agar.ledger.config import RecordPolicy
from agar.ledger.families import family_for
from agar.ledger.forest import Forest
from agar.ledger.parity import ParityCheck
from agar.ledger.toy import hash_logprobs, write_toy_model
from agar.ledger.trace import Trace
from agar.loop import Loop, Progress
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig, TasksConfig
from agar.rollout.scheduler import Scheduler, Stream
from agar.rollout.sources.live import LiveRollouts
from agar.types import Finish, Message, Outcome, Reward, Sampled, Sampling, TaskRow

Play = Callable[[Attempt], Awaitable[Trace]]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return family_for(write_toy_model(tmp_path_factory.mktemp("toy")))


@pytest.fixture
def play(family) -> Play:
    """Every attempt is one turn, whose reward is its index."""

    async def one(attempt: Attempt) -> Trace:
        forest = Forest(family)
        plan = forest.plan([Message(role="user", content=attempt.task.key)])
        ids = np.array([65 + attempt.index, family.stop_ids[0]], np.int32)
        sampled = Sampled.restore(
            token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), policy_versions=[0, 0], finish=Finish.STOP
        )
        forest.commit(plan, sampled, family.parse(ids), sampling=Sampling())
        return Trace(
            trajectory=attempt.trajectory,
            group=attempt.group,
            role="agent",
            policy=attempt.policy,
            task=attempt.task,
            nodes=tuple(forest.nodes),
            reward=Reward(total=float(attempt.index)),
            outcome=Outcome.COMPLETED,
        )

    return one


def source(play: Play, *, audit="strict", boundaries=(), keep=None, checks=None, **settings) -> LiveRollouts:
    tasks = GeneratedTasks(lambda index: TaskRow(key=f"t{index}"), size=100)
    config = RolloutConfig(**{"tasks_per_step": 2, "group_size": 2, **settings})
    stream = Stream(TasksConfig(env="Any-v0"), TaskCursor(tasks, seed=0, shuffle=False))
    return LiveRollouts(
        scheduler=Scheduler(streams=[stream], play=play, config=config, seed=0),
        boundaries=boundaries,
        record=RecordPolicy(max_staleness=config.max_staleness),
        audit=audit,
        keep=keep,
        **(checks or {}),
    )


def damaged(play: Play) -> Play:
    """One attempt's record says another prompt than its engine call had."""

    async def one(attempt: Attempt) -> Trace:
        trace = await play(attempt)
        if attempt.index:
            return trace
        return replace(trace, nodes=(replace(trace.nodes[0], prompt_digest="0" * 32),))

    return one


async def test_a_batch_is_whole_groups_with_rewards_and_counts(play):
    kept: list[Trace] = []
    live = source(play, keep=kept.extend)
    async with live.running():
        batch = await live.next_batch({"main": 0})
    assert [(s.group.task, s.reward) for s in batch.samples] == [("t0", 0.0), ("t0", 1.0), ("t1", 0.0), ("t1", 1.0)]
    assert [trace.trajectory for trace in kept] == [sample.trajectory for sample in batch.samples]
    assert batch.metrics["rollout/reward_mean"] == 0.5
    assert batch.metrics["rollout/trained_tokens"] == batch.metrics["ledger/trained_tokens"] == 8.0
    assert batch.metrics["ledger/violations"] == 0.0


async def test_a_strict_audit_refuses_the_batch_but_its_traces_are_kept(play):
    kept: list[Trace] = []
    live = source(damaged(play), keep=kept.extend)
    async with live.running():
        with pytest.raises(AuditError, match="I7"):
            await live.next_batch({"main": 0})
    assert len(kept) == 4


async def test_a_reporting_audit_counts_and_logs(play, caplog):
    live = source(damaged(play), audit="warn")
    async with live.running():
        batch = await live.next_batch({"main": 0})
    assert batch.metrics["ledger/violations"] == 2.0
    assert "I7 in t0#0/0" in caplog.text


async def test_prompts_are_rendered_again_and_rows_scored_again_before_a_batch_is_given_out(play, family):
    async def rescore(policy, ids):
        return hash_logprobs(ids[:1], ids[1:]) - (0.5 if policy == "off" else 0.0)

    checks = {"families": {"main": family}, "closely": 3}
    live = source(play, checks=checks | {"parity": ParityCheck(rescore=rescore, rows=2, tolerance_nats=0.1)})
    async with live.running():
        batch = await live.next_batch({"main": 0})
    assert batch.metrics["ledger/looked_at_I6"] == 3.0
    assert batch.metrics["ledger/parity_tokens"] == 4.0
    assert batch.metrics["ledger/audit_s"] > 0.0

    async def drifted(policy, ids):
        return await rescore("off", ids)

    live = source(play, checks={"parity": ParityCheck(rescore=drifted, rows=2, tolerance_nats=0.1)})
    async with live.running():
        with pytest.raises(AuditError, match=r"I3 in the batch.*4 tokens differ"):
            await live.next_batch({"main": 0})


async def test_tokens_older_than_the_bound_are_not_trained(play):
    live = source(play, max_staleness=1)
    async with live.running():
        batch = await live.next_batch({"main": 2})
    assert batch.samples == ()
    assert batch.metrics["ledger/excluded_stale_weights_tokens"] == 8.0


@pytest.mark.parametrize("resumed", [False, True])
async def test_only_publishes_that_follow_a_step_admit_more(play, resumed):
    """The first publish of a run and the one after a resume say nothing new: they must not let episodes run ahead."""
    order: list[str] = []

    @asynccontextmanager
    async def boundary():
        order.append("quiet")
        yield
        order.append("open")

    played: list[str] = []

    async def counted(attempt: Attempt) -> Trace:
        played.append(attempt.trajectory)
        return await play(attempt)

    live = source(counted, boundaries=[boundary, boundary])
    async with live.publishing({"main": 0}):
        order.append("publish")
    assert order == ["quiet", "quiet", "publish", "open", "open"]
    if resumed:
        async with live.running():
            await live.next_batch({"main": 0})
            async with live.publishing({"main": 1}):
                pass
            await asyncio.sleep(0.01)
        state, live = live.state(), source(counted, boundaries=[boundary])
        live.load_state(state)
        async with live.publishing({"main": 1}):
            pass
    async with live.running():
        await live.next_batch({"main": 0})
        await asyncio.sleep(0.01)
        assert len(played) == (8 if resumed else 4)
        async with live.publishing({"main": 1}):
            pass
        await asyncio.sleep(0.01)
        assert len(played) == (12 if resumed else 8)
    assert len(set(played)) == len(played)


@pytest.mark.parametrize("max_staleness", [0, 1])
async def test_a_stop_while_a_batch_is_scored_again_loses_no_group(play, max_staleness):
    """The batch that was taken and never trained is in the last checkpoint, and the resumed run begins with it."""
    trained: list[int] = []
    scoring = asyncio.Event()

    class Trainer:
        async def step(self, batch):
            trained.extend(dict.fromkeys(sample.group.ordinal for sample in batch.samples))
            return {}

    async def rescore(policy, ids):
        if len(trained) == 2:  # in the second batch
            scoring.set()
            await asyncio.Event().wait()
        return hash_logprobs(ids[:1], ids[1:])

    def loop(progress, **checks):
        async def at_boundary(step, metrics, batch):
            progress.versions["main"] = 0  # at which all is played here, so that no token is stale

        live = source(play, checks=checks, max_staleness=max_staleness, batch_timeout_s=20)
        return Loop(source=live, trainers={"main": Trainer()}, receivers={}, progress=progress, at_boundary=at_boundary)

    first = loop(Progress(), parity=ParityCheck(rescore=rescore, rows=1, tolerance_nats=None))
    running = asyncio.create_task(first.run(4))
    await scoring.wait()
    first.stop()
    await running
    assert (first.progress.step, trained) == (1, [0, 1])
    resumed = loop(first.progress)
    resumed.source.load_state(first.source.state())
    await resumed.run(4)
    assert trained == [0, 1, 2, 3, 4, 5, 6, 7]
