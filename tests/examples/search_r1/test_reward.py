"""What answers are worth."""

import pytest

from agar.envs import Conversation
from agar.examples.search_r1 import reward
from agar.types import Message, TaskRow, ToolCall

CALL = Message(role="assistant", tool_calls=(ToolCall(id="1", name="search", arguments={"query": "x"}),))


def told(text, **payload):
    task = TaskRow(key="k", payload=payload or {"answer": "http.client"})
    return Conversation(task=task, messages=(CALL, Message(role="assistant", content=text)))


@pytest.mark.parametrize(
    ("text", "exact", "f1", "shaped"),
    [
        ("<answer>`http.client`</answer>", 1.0, 1.0, 1.0),
        ("It is <answer>HTTP.client</answer>.", 1.0, 1.0, 0.9),
        ("<answer>http client</answer>", 0.0, 0.0, 0.1),
        ("http.client", 0.0, 0.0, 0.0),
        ("<answer>the http.client module</answer>", 0.0, 2 / 3, 0.1),
        ("", 0.0, 0.0, 0.0),
    ],
)
async def test_exact_match_f1_and_form(text, exact, f1, shaped):
    conversation = told(text)
    assert (await reward.EXACT.grade("trajectory", conversation)).total == exact
    assert (await reward.F1.grade("trajectory", conversation)).total == pytest.approx(f1)
    assert (await reward.SHAPED.grade("trajectory", conversation)).total == pytest.approx(shaped)


async def test_searches_are_counted_and_not_rewarded():
    graded = await reward.EXACT.grade("trajectory", told("<answer>x</answer>"))
    assert (graded.total, graded.parts["searches"]) == (0.0, 1.0)


async def test_tasks_of_search_r1_may_have_several_right_answers():
    conversation = told("<answer>1545</answer>", golden_answers=["19 July 1545", "1545"])
    assert (await reward.GOLDEN.grade("trajectory", conversation)).total == 1.0
    assert (await reward.SHAPED_GOLDEN.grade("trajectory", conversation)).total == 1.0
