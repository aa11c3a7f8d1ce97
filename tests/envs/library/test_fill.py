"""Conditions mean what they say; any solution counts."""

import numpy as np
import pytest

from agar.envs.library.fill import Fill, broken, draw, holds, written
from agar.errors import ToolError
from agar.types import TaskRow, ToolCall, Turn

SUM = {"terms": [[1, "A"], [-1, "B"], [1, "C"]], "is": "=", "number": 4}
LESS = {"terms": [[1, "B"]], "is": "<", "number": 3}
PUZZLE = {"solution": {"A": 1, "B": 2, "C": 5}, "conditions": [SUM, LESS]}


def test_conditions_are_written_and_judged_by_hand():
    assert (written(SUM), written(LESS)) == ("A - B + C = 4", "B < 3")
    assert holds(SUM, {"A": 1, "B": 2, "C": 5})
    assert not holds(SUM, {"A": 1, "B": 2, "C": 4})
    assert not holds(LESS, {"B": 3})
    assert broken(PUZZLE, {"A": 5, "B": 2, "C": 1}) == []
    assert broken(PUZZLE, {"A": 3, "B": 3, "C": 3}) == ["all digits differ", "A - B + C = 4", "B < 3"]
    assert broken(PUZZLE, {"A": 0, "B": 1, "C": 5}) == ["A is 1 to 9"]
    with pytest.raises(ToolError, match="A, B, C"):
        broken(PUZZLE, {"A": 1})


def test_every_puzzle_has_its_solution_and_names_every_letter():
    for seed in range(200):
        prompt, payload = draw(np.random.default_rng(seed))
        assert broken(payload, payload["solution"]) == []
        for letter in payload["solution"]:
            assert any(letter in [name for _, name in c["terms"]] for c in payload["conditions"])
        assert all(written(condition) in prompt for condition in payload["conditions"])


async def test_the_checker_tool_says_what_is_wrong_and_another_solution_wins_too():
    env = Fill()
    await env.areset(options={"task": TaskRow(key="p", payload=PUZZLE)})
    for digits, said in [
        ({"a": 1, "b": 4, "c": 5}, "not fulfilled: A - B + C = 4; B < 3"),
        ({"A": 5, "B": 2, "C": 1}, "all conditions hold"),
        ({"A": 5}, "error: give a digit to each of A, B, C, and to nothing else"),
        ({"A": 5, "B": 2, "Z": 1}, "error: give a digit to each of A, B, C, and to nothing else"),
    ]:
        call = ToolCall(id="c", name="check", arguments={"digits": digits})
        assert (await env.astep(Turn(tool_calls=(call,))))[0][0].text == said
    call = ToolCall(id="c", name="submit", arguments={"answer": "A = 5, b=2 C=1"})
    assert (await env.astep(Turn(tool_calls=(call,))))[1:3] == (1.0, True)


@pytest.mark.parametrize("text", ["A=1 B=2", "A=1 B=4 C=5", "", "A=1 B=2 C=55", "A B C"])
async def test_a_text_is_an_answer_too_and_a_wrong_one_earns_nothing(text):
    env = Fill()
    await env.areset(options={"task": TaskRow(key="p", payload=PUZZLE)})
    assert (await env.astep(Turn(text=text)))[1:3] == (0.0, True)
