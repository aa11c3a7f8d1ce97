"""Turns, tokens and time, each cut off with its name; an episode that ends by itself is not."""

import pytest

from agar.envs.wrappers import TokenBudget, TurnLimit, WallClock
from agar.types import Message, ToolCall, Turn


async def test_a_turn_limit_counts_anew_after_a_reset(env, play):
    limited = TurnLimit(env, max_turns=2)
    for _ in range(2):
        _, results = await play(limited, *"abcde")
        assert [result[2:] for result in results] == [(False, False, {}), (False, True, {"truncated_by": "max_turns"})]


async def test_the_end_of_the_task_comes_before_the_limit(env, play):
    _, results = await play(TurnLimit(env, max_turns=5), *"abcde")
    assert results[-1][2:] == (True, False, {})


async def test_a_token_budget_counts_what_is_said_and_heard(env, play):
    # 1 token ("turn"), then per turn: what is said, and two ("turn 1").
    count = lambda text: len(text.split())  # noqa: E731
    _, results = await play(TokenBudget(env, max_tokens=8, count=count), "one two", "three", "four")
    assert [result[3] for result in results] == [False, True]
    assert results[-1][4] == {"truncated_by": "max_tokens"}


def test_reasoning_and_calls_are_counted_too(env):
    budget = TokenBudget(env, max_tokens=10**6, count=len)
    budget.reset()
    before = budget.tokens
    call = ToolCall(id="1", name="sh", arguments={"a": 1})
    budget.step(Turn(text="abc", reasoning="defg", tool_calls=(call,)))
    assert budget.tokens - before == len("abc" + "defg" + "sh" + '{"a": 1}' + "turn 1")


async def test_a_wall_clock_is_looked_at_after_every_turn(env, play):
    times = iter([0.0, 100.0, 101.0, 109.9, 110.0])
    _, results = await play(WallClock(env, limit_s=10, clock=lambda: next(times)), *"abc")
    assert [result[3] for result in results] == [False, False, True]
    assert results[-1][4] == {"truncated_by": "wall_clock"}


@pytest.mark.parametrize(
    ("wrap", "complaint"),
    [
        (lambda env: TokenBudget(env, max_tokens=0, count=len), "max_tokens"),
        (lambda env: WallClock(env, limit_s=0), "limit_s must be positive"),
    ],
)
def test_impossible_budgets_are_refused(env, wrap, complaint):
    with pytest.raises(ValueError, match=complaint):
        wrap(env)


def test_messages_are_counted_by_their_text(env):
    env.says = "turn"
    budget = TokenBudget(env, max_tokens=100, count=len)
    assert budget._heard([Message(role="user", content="abc"), Message(role="tool", content="de")]) == 5
