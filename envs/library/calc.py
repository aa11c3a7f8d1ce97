"""Calc-v0: word problems of two to four steps, with a calculator."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agar.envs.base import StepResult
from agar.envs.library.arithmetic import evaluate, written
from agar.envs.library.drawn import DrawnTasks, pick
from agar.envs.parsing import parse_int
from agar.envs.spaces import Observation
from agar.envs.tool_env import ToolEnv
from agar.tool_servers.tools import tool
from agar.types import ToolCall, Turn

_NAMES = ("Ada", "Ben", "Chen", "Dora", "Emil", "Fatou", "Goran", "Hana", "Ines", "Jonas")
_ITEMS = ("marbles", "stamps", "apples", "shells", "coins", "cards", "beads", "books")


class Calc(ToolEnv):
    """A word problem; reward 1 if the last whole number of the final text is the answer."""

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Tell the problem."""
        await super().areset(seed=seed, options=options)
        self.task = tasks.given_or_drawn(options, self.np_random)
        self._called = False
        return self.task.prompt, {}

    @tool
    def calculate(self, expression: str) -> str:
        """Work out an expression of numbers, + - * / // % and brackets."""
        return written(evaluate(expression))

    async def astep(self, action: Turn) -> StepResult:
        """Calculate, or grade the answer."""
        self._called = self._called or bool(action.tool_calls)
        return await super().astep(action)

    async def answer(self, action: Turn) -> StepResult:
        """Grade the final text."""
        return "", float(parse_int(action.text) == self.task.payload["answer"]), True, False, {}

    def gold(self) -> Turn:
        """Calculate, then say the answer."""
        if self._called:
            return Turn(text=f"The answer is {self.task.payload['answer']}.")
        call = ToolCall(id="call_0", name="calculate", arguments={"expression": self.task.payload["expression"]})
        return Turn(tool_calls=(call,))


def draw(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A problem: its text, and the expression and number that answer it."""
    name, item = pick(rng, _NAMES), pick(rng, _ITEMS)
    total = int(rng.integers(12, 100))
    expression = str(total)
    sentences = [f"{name} has {total} {item}."]
    for _ in range(int(rng.integers(2, 5))):
        sentence, total, expression = _step(rng, name, item, total, expression)
        sentences.append(sentence)
    sentences.append(f"How many {item} does {name} have now?")
    return " ".join(sentences), {"expression": expression, "answer": total}


def _step(rng: np.random.Generator, name: str, item: str, total: int, expression: str) -> tuple[str, int, str]:
    """What happens next, and the total and expression after it."""
    few, some, many = int(rng.integers(2, 10)), int(rng.integers(10, 60)), int(rng.integers(3, 25))
    shares = [n for n in range(2, 10) if total % n == 0]
    kinds = ["buy", "boxes"] + ["give"] * (total > some) + ["times"] * (total < 1000) + ["share"] * bool(shares)
    match pick(rng, kinds):
        case "buy":
            return f"{name} buys {some} more.", total + some, f"({expression} + {some})"
        case "boxes":
            said = f"Then {few} boxes with {many} {item} each arrive."
            return said, total + few * many, f"({expression} + {few} * {many})"
        case "give":
            return f"{name} gives {some} away.", total - some, f"({expression} - {some})"
        case "times":
            return f"By trading, {name} gets {few} for each of them.", total * few, f"{expression} * {few}"
    share = pick(rng, shares)
    said = f"{name} shares them equally among {share} people, one of whom is {name}."
    return said, total // share, f"{expression} / {share}"


tasks = DrawnTasks("Calc-v0", draw)
