"""Rubrics: weights, stages, failures, the cache."""

import asyncio
import sys
import types
from fractions import Fraction

import pytest

from agar.envs.rubric import Conversation, Criterion, Rubric
from agar.errors import ConfigError, EngineError, EnvError, ToolError
from agar.types import Message, Reward, TaskRow


def told(reply="29", **fields):
    return Conversation(
        task=TaskRow(key="k", payload={"answer": "29"}), messages=(Message(role="assistant", content=reply),), **fields
    )


def right(conversation):
    return conversation.reply == conversation.task.payload["answer"]


async def brief(conversation):
    await asyncio.sleep(0)
    return len(conversation.reply) / 10


async def test_scores_are_weighted_and_told_by_name():
    rubric = Rubric([
        Criterion(name="right", score=right, weight=2.0), Criterion(name="brief", score=brief, weight=-1.0),
        Criterion(name="length", score=lambda c: len(c.reply), weight=0.0),
        Criterion(name="polite", score=lambda c: 5, stage="turn"),
    ])  # fmt: skip
    assert await rubric.grade("trajectory", told()) == Reward(
        total=2.0 - 0.2, parts={"right": 1.0, "brief": 0.2, "length": 2.0}
    )
    assert await rubric.grade("turn", told()) == Reward(total=5.0, parts={"polite": 5.0})
    assert (rubric.has("turn"), rubric.has("group")) == (True, False)


async def test_a_group_is_graded_together():
    def rank(group):
        order = sorted(group, key=lambda c: -c.reward)
        return [order.index(each) for each in group]

    async def share(group):
        return [len({c.reply for c in group}) / len(group)] * len(group)

    rubric = Rubric([
        Criterion(name="rank", score=rank, weight=-0.5, stage="group"),
        Criterion(name="share", score=share, stage="group"),
    ])  # fmt: skip
    graded = await rubric.grade_group([told("a", reward=0.0), told("a", reward=3.0)])
    assert graded == [
        Reward(total=0.0, parts={"rank": 1.0, "share": 0.5}),
        Reward(total=0.5, parts={"rank": 0.0, "share": 0.5}),
    ]


def boom(conversation):
    raise ValueError("no such page")


def late(conversation):
    raise TimeoutError("the page did not load")


async def hang(conversation):
    await asyncio.Event().wait()


async def asks_for_a_tool(conversation):
    raise ToolError("no such file")


async def gives_up(conversation):
    raise asyncio.CancelledError


async def cancels_its_own_task(conversation):
    asyncio.current_task().cancel()
    await asyncio.sleep(60)


async def leaves(conversation):
    sys.exit(4)


def leaves_in_its_thread(conversation):
    sys.exit(4)


class Odd:
    def __float__(self):
        raise KeyError("x")

    def __repr__(self):
        raise KeyError("x")


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (boom, "reward 'it' raised ValueError: no such page"),
        (late, "reward 'it' raised TimeoutError: the page did not load"),
        (hang, r"reward 'it' gave no score within 0\.05 s"),
        (lambda c: float("nan"), "reward 'it' gave nan"),
        (lambda c: "high", "reward 'it' gave 'high': return a number"),
        (lambda c: None, "reward 'it' gave None"),
        (lambda c: "0.5", "reward 'it' gave '0.5': return a number"),
        (lambda c: 10**400, "reward 'it' gave 1000"),
        (lambda c: 1e39, r"reward 'it' gave 1e\+39: .*float32"),
        (lambda c: -1e39, r"reward 'it' gave -1e\+39"),
        (lambda c: Odd(), "reward 'it' gave a Odd whose repr raises"),
        (gives_up, "reward 'it' raised RuntimeError: raised CancelledError"),
        (cancels_its_own_task, "reward 'it' raised RuntimeError: raised CancelledError"),
        (leaves, "reward 'it' raised RuntimeError: raised SystemExit"),
        (leaves_in_its_thread, "reward 'it' raised RuntimeError: raised SystemExit"),
    ],
    ids=[
        "raises", "times out", "hangs", "nan", "text", "none", "number in a text", "beyond float64", "beyond float32",
        "below it", "odd", "gives up", "cancels itself", "exits", "exits in its thread",
    ],
)  # fmt: skip
async def test_a_failing_reward_is_the_environments_failure(score, said):
    limit_s = 0.05 if score is hang else 60.0
    with pytest.raises(EnvError, match=said):
        await Rubric([Criterion(name="it", score=score, timeout_s=limit_s)]).grade("trajectory", told())


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (lambda g: 1.0, "with a score for each attempt"),
        (lambda g: {"a": 1, "b": 2}, "gave dict: return a list"),
        (lambda g: [1.0], "gave 1 scores for 2"),
        (boom, "no such page"),
        (asks_for_a_tool, "reward 'it' raised ToolError: no such file"),
        (cancels_its_own_task, "raised CancelledError"),
    ],
)
async def test_a_failing_group_reward_too(score, said):
    with pytest.raises(EnvError, match=said):
        await Rubric([Criterion(name="it", score=score, stage="group")]).grade_group([told(), told("30")])


async def test_a_weighted_score_or_a_total_beyond_float32_is_the_environments_failure_too():
    heavy = Rubric([Criterion(name="it", score=lambda c: 1e30, weight=1e30)])
    with pytest.raises(EnvError, match=r"reward 'it' gave 1e\+30, which by its weight of 1e\+30 is 1e\+60"):
        await heavy.grade("trajectory", told())
    sums = Rubric([Criterion(name=name, score=lambda c: 9e29) for name in ("a", "b")])
    with pytest.raises(EnvError, match=r"the rewards a, b sum to 1\.8e\+30"):
        await sums.grade("trajectory", told())
    group = Rubric([Criterion(name="it", score=lambda g: [1e30] * len(g), weight=1e30, stage="group")])
    with pytest.raises(EnvError, match="reward 'it' gave"):
        await group.grade_group([told(), told()])


async def test_who_cancels_a_grading_has_it_cancelled():
    for cached in (False, True):
        grading = asyncio.create_task(
            Rubric([Criterion(name="it", score=hang, cached=cached)]).grade("trajectory", told())
        )
        await asyncio.sleep(0.01)
        grading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await grading


async def test_a_group_of_none_has_no_rewards():
    assert await Rubric([Criterion(name="it", score=lambda g: [], stage="group")]).grade_group([]) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stage": "trajectry"}, "stage: expected one of turn, trajectory, group, got 'trajectry'"),
        ({"stage": ["turn"]}, "stage: expected one of"),
        ({"weight": float("nan")}, "weight: expected a finite number of at most .*, got nan"),
        ({"weight": float("-inf")}, "weight: expected a finite number"),
        ({"weight": 1e39}, "weight: expected a finite number"),
        ({"weight": 10**400}, "weight: expected a finite number"),
        ({"weight": "0.5"}, "weight: expected a finite number of at most .*, got '0.5'"),
        ({"weight": True}, "weight: expected a finite number"),
        ({"timeout_s": 0}, "timeout_s: expected a finite number above 0, got 0"),
        ({"timeout_s": float("inf")}, "timeout_s: expected"),
        ({"timeout_s": float("nan")}, "timeout_s: expected"),
        ({"timeout_s": 10**400}, "timeout_s: expected"),
        ({"score": 1.0}, "score: expected a function of a Conversation, got 1.0"),
        ({"cached": "yes"}, "cached: expected True or False, got 'yes'"),
        ({"name": ""}, "name: expected a text that is not empty, got ''"),
        ({"name": 3}, "name: expected a text"),
    ],
)
def test_what_could_not_be_graded_is_refused_when_it_is_written(fields, said):
    with pytest.raises(ConfigError, match=said):
        Criterion(**{"name": "it", "score": right, **fields})


async def test_a_number_of_another_kind_counts_what_it_says():
    quarter = Criterion(name="it", score=right, weight=Fraction(1, 4), timeout_s=Fraction(5, 2))
    assert (quarter.weight, quarter.timeout_s) == (0.25, 2.5)
    assert (await Rubric([quarter]).grade("trajectory", told())).total == 0.25


def test_a_deadline_is_no_reward_and_is_not_bounded_as_one():
    assert Criterion(name="it", score=right, timeout_s=1e31).timeout_s == 1e31


def test_a_rubric_is_of_criteria():
    for criteria in ([right], right, ["a"]):
        with pytest.raises(ConfigError, match="expected criteria, got"):
            Rubric(criteria)


async def test_an_error_that_says_whose_fault_it_is_passes_through():
    def engine(conversation):
        raise EngineError("down")

    with pytest.raises(EngineError, match="down"):
        await Rubric([Criterion(name="it", score=engine)]).grade("trajectory", told())


async def test_all_criteria_end_before_the_first_failure_is_raised():
    ended = []

    async def slow(conversation):
        await asyncio.sleep(0.02)
        ended.append(1)
        return 0.0

    with pytest.raises(EnvError):
        await Rubric([Criterion(name="boom", score=boom), Criterion(name="slow", score=slow)]).grade(
            "trajectory", told()
        )
    assert ended == [1]


async def test_a_cached_criterion_grades_the_same_conversation_once():
    asked = []

    def count(conversation):
        asked.append(conversation.reply)
        return len(asked)

    rubric = Rubric([Criterion(name="n", score=count, cached=True)])
    totals = [(await rubric.grade("trajectory", told(reply))).total for reply in ("a", "b", "a", "b")]
    assert totals == [1.0, 2.0, 1.0, 2.0]
    assert asked == ["a", "b"]


async def test_a_cached_criterion_grades_equal_conversations_at_once_only_once():
    asked = []

    async def judge(conversation):
        asked.append(conversation.reply)
        await asyncio.sleep(0)
        return 0.5

    rubric = Rubric([Criterion(name="judge", score=judge, cached=True)])
    grades = await asyncio.gather(*(rubric.grade("trajectory", told()) for _ in range(5)))
    assert [grade.total for grade in grades] == [0.5] * 5
    assert asked == ["29"]


async def test_a_cached_group_criterion_looks_at_the_rewards_too():
    asked = []

    def count(group):
        asked.append(group)
        return [0.0] * len(group)

    rubric = Rubric([Criterion(name="n", score=count, cached=True, stage="group")])
    for reward in (0.0, 1.0, 0.0):
        await rubric.grade_group([told(reward=reward)])
    assert len(asked) == 2


async def test_a_function_that_gives_a_coroutine_is_awaited():
    rubric = Rubric([Criterion(name="brief", score=lambda conversation: brief(conversation))])
    assert (await rubric.grade("trajectory", told())).total == 0.2


async def test_a_failure_is_not_cached():
    left = [ValueError("once"), 3.0]

    def flaky(conversation):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    rubric = Rubric([Criterion(name="n", score=flaky, cached=True)])
    with pytest.raises(EnvError, match="once"):
        await rubric.grade("trajectory", told())
    assert (await rubric.grade("trajectory", told())).total == 3.0


def test_names_are_needed_and_are_found(monkeypatch):
    for criteria in ([], [Criterion(name="a", score=right)] * 2):
        with pytest.raises(ConfigError, match="names of their own"):
            Rubric(criteria)
    made = types.ModuleType("my_rubrics")
    made.rubric, made.number = Rubric([Criterion(name="a", score=right)]), 3
    monkeypatch.setitem(sys.modules, "my_rubrics", made)
    assert Rubric.named("my_rubrics:rubric") is made.rubric
    for name, said in (
        ("my_rubrics:number", "is a int"),
        ("my_rubrics:no", "cannot be found"),
        ("", "cannot be found"),
    ):
        with pytest.raises(ConfigError, match=said):
            Rubric.named(name)


def test_the_reply_is_the_agents_latest_message():
    messages = (Message(role="assistant", content="a"), Message(role="tool", content="b"))
    assert Conversation(task=TaskRow(key="k"), messages=messages).reply == "a"
    assert Conversation(task=TaskRow(key="k"), messages=()).reply == ""


async def test_the_slowest_gradings_are_named_and_one_near_its_deadline_is_logged(caplog):
    async def slow(conversation):
        await asyncio.sleep(0.3)
        return 1.0

    rubric = Rubric([Criterion(name="quick", score=right), Criterion(name="slow", score=slow, timeout_s=0.5)])
    await rubric.grade("trajectory", told())
    assert [name for _, name, _ in rubric.slowest] == ["slow", "quick"]
    assert rubric.slowest[0][0] >= 0.3
    assert "reward 'slow' of task k took 0." in caplog.text
    assert "quick" not in caplog.text
