"""Word problems are what their text says."""

import re

import numpy as np

from agar.envs.library.arithmetic import evaluate
from agar.envs.library.calc import Calc, draw, tasks
from agar.types import ToolCall, Turn


def told(text):
    """The answer, read off the text alone."""
    total = 0
    for sentence in text.split(". "):
        numbers = [int(number) for number in re.findall(r"[0-9]+", sentence)]
        match sentence.split(maxsplit=1)[0], numbers:
            case _, [number] if " has " in sentence:
                total = number
            case _, [number] if "buys" in sentence:
                total += number
            case _, [boxes, each] if "boxes" in sentence:
                total += boxes * each
            case _, [number] if "away" in sentence:
                total -= number
            case _, [number] if "trading" in sentence:
                total *= number
            case _, [people] if "equally" in sentence:
                assert total % people == 0
                total //= people
            case _:
                assert sentence.startswith("How many"), sentence
    return total


def test_text_expression_and_answer_agree():
    for seed in range(300):
        text, payload = draw(np.random.default_rng(seed))
        assert told(text) == payload["answer"] == evaluate(payload["expression"]) >= 0


async def test_the_calculator_answers_and_the_last_number_counts():
    env = Calc()
    task = tasks("train")[0]
    await env.areset(options={"task": task})
    call = ToolCall(id="a", name="calculate", arguments={"expression": "2 * (3 + 4)"})
    messages, reward, terminated, _, _ = await env.astep(Turn(tool_calls=(call,)))
    assert (messages[0].text, reward, terminated) == ("14", 0.0, False)
    answer = task.payload["answer"]
    assert (await env.astep(Turn(text=f"Not {answer - 1}, but {answer}.")))[1] == 1.0
    await env.areset(options={"task": task})
    assert (await env.astep(Turn(text=f"{answer}, no: {answer + 1}")))[1] == 0.0
