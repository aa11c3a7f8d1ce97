"""The group stage over traces."""

import asyncio
from dataclasses import replace

import pytest

from agar.envs.rubric import Criterion, Rubric
from agar.errors import ConfigError
from agar.ledger.families import family_for
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import EvaluationConfig, TasksConfig
from agar.rollout.grading import conversation_of, grade_group, grading_of, play_group
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Two turns of an agent, and a sub-agent that speaks in between."""
    family = family_for(write_toy_model(tmp_path_factory.mktemp("model")))
    forest = Forest(family)

    def call(history, says):
        plan = forest.plan(history)
        ids = family.tokenizer.encode(f"{says}<|im_end|>", special=True)
        sampled = Sampled.restore(
            token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), policy_versions=[0] * len(ids), finish=Finish.STOP
        )
        return forest.commit(plan, sampled, family.parse(ids), sampling=Sampling()).turn.message()

    ask, more = Message(role="user", content="How much?"), Message(role="user", content="Sure?")
    first = call([ask], "box 1")
    call([Message(role="user", content="You help.")], "done")
    call([ask, first, more], "29")
    return Trace(
        trajectory="k#0/0", group=GroupId(task="k", ordinal=0), role="agent", policy="main", task=TaskRow(key="k"),
        nodes=tuple(forest.nodes), turn_rewards={0: 0.5}, reward=Reward(total=0.5, parts={"own": 0.5}),
        outcome=Outcome.COMPLETED,
    )  # fmt: skip


def test_the_conversation_is_the_agents_own(trace):
    told = conversation_of(trace)
    assert [message.text for message in told.messages] == ["How much?", "box 1", "Sure?", "29"]
    assert (told.reply, told.reward, told.parts) == ("29", 0.5, {"own": 0.5})
    assert conversation_of(replace(trace, nodes=(), turn_rewards={})).messages == ()


def places(group):
    return [float(index) for index, _ in enumerate(group)]


async def test_what_the_group_stage_adds_counts_for_the_last_reply(trace):
    rubric = Rubric([Criterion(name="place", score=places, weight=2.0, stage="group")])
    failed = replace(trace, outcome=Outcome.INFRA_ERROR)
    first, left_out, second = await grade_group(rubric, [trace, failed, replace(trace, trajectory="k#0/2")])
    assert left_out is failed  # outside of the statistics: the others are compared without it
    assert (first.reward, first.turn_rewards) == (Reward(total=0.5, parts={"own": 0.5, "place": 0.0}), {0: 0.5})
    assert (second.reward.total, second.turn_rewards) == (2.5, {0: 0.5, 2: 2.0})
    assert sum(second.turn_rewards.values()) == second.reward.total


async def test_a_group_that_cannot_be_graded_has_failed_as_a_whole(trace):
    def boom(group):
        raise ValueError("no")

    rubric = Rubric([Criterion(name="it", score=boom, stage="group")])
    for graded in await grade_group(rubric, [trace, trace]):
        assert (graded.outcome, graded.reason) == (Outcome.ENV_ERROR, "reward 'it' raised ValueError: no")
    nobody = replace(trace, outcome=Outcome.CANCELLED)
    assert await grade_group(rubric, [nobody]) == [nobody]


async def test_a_group_whose_rewards_no_float32_can_hold_has_failed_as_a_whole(trace):
    rubric = Rubric([Criterion(name="it", score=lambda group: [1.0, 9e29], stage="group")])
    rich = replace(trace, trajectory="k#0/1", reward=Reward(total=9e29))
    for graded in await grade_group(rubric, [trace, rich]):
        assert graded.outcome is Outcome.ENV_ERROR
        assert graded.reason.startswith("k#0/1: with those of its group, the rewards make 1.8e+30")
        assert "it" not in graded.reward.parts


@pytest.mark.parametrize(("with_open_calls", "totals"), [(False, [0.5, 0.5, 1.5]), (True, [0.5, 1.5, 2.5])])
async def test_an_attempt_with_open_calls_is_compared_where_it_is_counted(trace, with_open_calls, totals):
    rubric = Rubric([Criterion(name="place", score=places, stage="group")])
    traces = [trace, replace(trace, open_calls=1), trace]
    graded = await grade_group(rubric, traces, with_open_calls=with_open_calls)
    assert [each.reward.total for each in graded] == totals


async def test_a_group_is_graded_when_its_last_attempt_has_ended(trace):
    attempts = [Attempt(group=trace.group, index=n, task=trace.task, env="Any-v0") for n in range(3)]
    ended: list[int] = []

    async def play(attempt):
        for _ in range(3 - attempt.index):  # the last one ends first
            await asyncio.sleep(0)
        ended.append(attempt.index)
        return replace(trace, trajectory=attempt.trajectory)

    async def grade(traces):
        assert ended == [2, 1, 0]
        return [replace(each, reason="graded") for each in traces]

    assert [(t.trajectory, t.reason) for t in await play_group(attempts, play, grade)] == [
        (f"k#0/{n}", "graded") for n in range(3)
    ]
    assert [t.reason for t in await play_group(attempts, play, None)] == [""] * 3


async def test_what_would_fail_for_every_group_is_raised(trace):
    def hopeless(group):
        raise ConfigError("no such judge")

    with pytest.raises(ConfigError, match="no such judge"):
        await grade_group(Rubric([Criterion(name="it", score=hopeless, stage="group")]), [trace])


GROUPED = Rubric([Criterion(name="place", score=places, stage="group")])
ALONE = Rubric([Criterion(name="words", score=lambda told: len(told.reply.split()))])


@pytest.mark.parametrize("table", [TasksConfig, EvaluationConfig])
async def test_the_rubric_is_that_of_the_tables_environment(trace, table):
    def of(**kwargs):
        return grading_of(table(env="agar.envs.library.question:Question-v0", kwargs=kwargs))

    assert of(rubric=ALONE) is None
    assert of() is None
    assert grading_of(table(env="Guess-v0")) is None
    grade = of(rubric=GROUPED)
    assert grade is not None
    assert [graded.reward.total for graded in await grade([trace, trace])] == [0.5, 1.5]
    open_at_the_end = replace(trace, open_calls=1)
    rewards = [graded.reward.total for graded in await grade([trace, open_at_the_end])]
    assert rewards == [0.5, 0.5 if table is TasksConfig else 1.5]
