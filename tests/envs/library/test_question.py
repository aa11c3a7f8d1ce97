"""Questions with answers, graded by a rubric."""

import pytest

from agar.envs.library.question import Question, tasks
from agar.envs.rewards import exact_match, matches, maths, multiple_choice
from agar.envs.rubric import Criterion, Rubric
from agar.envs.runner import as_async
from agar.errors import ConfigError, EnvError
from agar.types import Message, TaskRow

RUBRIC = Rubric([
    Criterion(name="right", score=exact_match()),
    Criterion(name="form", score=matches("[a-z]+"), weight=0.5, stage="turn"),
])  # fmt: skip


async def answer(env, task, text):
    async with as_async(env) as playing:
        asked, _ = await playing.areset(options={"task": task})
        _, reward, terminated, truncated, info = await playing.astep(text)
    assert (terminated, truncated) == (True, False)
    return asked, reward, info["reward_parts"]


async def test_a_prompt_is_asked_and_the_answer_graded():
    task = TaskRow(key="k", prompt="Capital of France?", payload={"answer": "Paris"})
    asked, reward, parts = await answer(Question(rubric=RUBRIC), task, "Paris")
    assert asked == [Message(role="user", content="Capital of France?")]
    assert (reward, parts) == (1.0, {"right": 1.0, "form": 0.0})
    assert (await answer(Question(rubric=RUBRIC), task, "paris"))[1] == 1.5


async def test_messages_of_the_payload_are_asked_as_they_are():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    task = TaskRow(key="k", prompt="2+2?", payload={"messages": messages, "answer": "4"})
    asked, reward, _ = await answer(Question(), task, "It is 4")
    assert [(message.role, message.content) for message in asked] == [("system", "Be brief."), ("user", "2+2?")]
    assert reward == 1.0


async def test_by_itself_it_asks_for_sums():
    train, heldout = tasks("train"), tasks("heldout")
    assert (len(train), len(heldout)) == (8000, 2000)
    pairs = [{train[i].prompt for i in range(8000)}, {heldout[i].prompt for i in range(2000)}]
    assert len(pairs[0]) + len(pairs[1]) == 10_000
    assert not pairs[0] & pairs[1]
    for task, text, reward in ((train[77], train[77].payload["answer"], 1.0), (heldout[5], "no idea", 0.0)):
        assert (await answer(Question(), task, text))[1] == reward


async def test_what_cannot_be_asked_or_graded_is_the_environments_fault():
    with pytest.raises(EnvError, match="asks nothing"):
        await answer(Question(), TaskRow(key="k"), "a")
    with pytest.raises(EnvError, match="no 'answer' in its payload"):
        await answer(Question(), TaskRow(key="k", prompt="?"), "4")
    with pytest.raises(ConfigError, match="cannot be found"):
        Question(rubric="nowhere:rubric")


@pytest.mark.parametrize(
    ("score", "payload", "gold"),
    [
        (exact_match(), {"answer": {"text": ["Paris", "the city"], "answer_start": [1, 2]}}, "Paris"),
        (multiple_choice(), {"answer": 2, "choices": ["3", "1", "0", "2"]}, "C"),
        (maths(symbolic=False), {"answer": [5, "five"]}, "5"),
        (exact_match(), {}, None),
    ],
)
async def test_its_gold_is_the_right_answer(score, payload, gold):
    env = Question(rubric=Rubric([Criterion(name="right", score=score)]))
    task = TaskRow(key="k", prompt="?", payload=payload)
    await env.areset(options={"task": task})
    assert env.gold() == gold
    if gold is not None:
        assert (await answer(env, task, gold))[1] == 1.0


async def test_a_right_choice_that_is_none_of_them_is_no_zero():
    env = Question(rubric=Rubric([Criterion(name="right", score=multiple_choice())]))
    with pytest.raises(EnvError, match="is none of the choices"):
        await answer(env, TaskRow(key="k", prompt="?", payload={"answer": 7, "choices": ["x", "y"]}), "A")


async def test_a_criterion_that_ends_the_process_is_the_environments_failure():
    async def leave(told):
        raise SystemExit(4)

    env = Question(rubric=Rubric([Criterion(name="it", score=leave)]))
    with pytest.raises(EnvError, match="reward 'it' raised"):
        await answer(env, TaskRow(key="k", prompt="?"), "A")
