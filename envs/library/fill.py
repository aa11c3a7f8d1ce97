"""Fill-v0: give letters different digits so that every condition holds; a tool says which ones do not."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from agar.envs.base import StepResult
from agar.envs.library.drawn import DrawnTasks, pick
from agar.envs.spaces import Observation
from agar.envs.tool_env import ToolEnv
from agar.errors import ToolError
from agar.tool_servers.tools import tool
from agar.types import ToolCall, Turn

_LETTERS = "ABCDEF"
_PAIR = re.compile(r"\b([A-F])\s*=\s*([1-9])(?![0-9])")
_SIGNS = {"=": lambda left, right: left == right, "<": lambda left, right: left < right}


class Fill(ToolEnv):
    """A puzzle of digits; reward 1 if the answer that was handed in fulfils every condition."""

    submits = True

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Pose the puzzle."""
        await super().areset(seed=seed, options=options)
        self.task = tasks.given_or_drawn(options, self.np_random)
        self._checked = False
        return self.task.prompt, {}

    @tool
    def check(self, digits: dict[str, int]) -> str:
        """Say which conditions do not hold.

        Args:
            digits: a digit for each letter.
        """
        self._checked = True
        wrong = broken(self.task.payload, {letter.upper(): digit for letter, digit in digits.items()})
        return f"not fulfilled: {'; '.join(wrong)}" if wrong else "all conditions hold"

    async def answer(self, action: Turn) -> StepResult:
        """Grade the answer, `A=1 B=2 …`."""
        digits = {letter: int(digit) for letter, digit in _PAIR.findall(action.text.upper())}
        try:
            right = not broken(self.task.payload, digits)
        except ToolError:
            right = False
        return "", float(right), True, False, {}

    def gold(self) -> Turn:
        """Check the solution, then hand it in."""
        solution = dict(self.task.payload["solution"])
        if not self._checked:
            return Turn(tool_calls=(ToolCall(id="call_0", name="check", arguments={"digits": solution}),))
        text = " ".join(f"{letter}={digit}" for letter, digit in solution.items())
        return Turn(tool_calls=(ToolCall(id="call_1", name="submit", arguments={"answer": text}),))


def broken(payload: Mapping[str, Any], digits: Mapping[str, int]) -> list[str]:
    """The conditions that an assignment does not fulfil.

    Raises:
        ToolError: a letter lacks its digit, or there is one too many.
    """
    letters = payload["solution"]
    if digits.keys() != letters.keys():
        raise ToolError(f"give a digit to each of {', '.join(letters)}, and to nothing else")
    wrong = [] if len(set(digits.values())) == len(digits) else ["all digits differ"]
    wrong += [f"{letter} is 1 to 9" for letter, digit in digits.items() if not 1 <= digit <= 9]
    return wrong + [written(c) for c in payload["conditions"] if not holds(c, digits)]


def holds(condition: Mapping[str, Any], digits: Mapping[str, int]) -> bool:
    """Whether a condition holds: the sum of some letters, times their signs, against a number."""
    total = sum(sign * digits[letter] for sign, letter in condition["terms"])
    return bool(_SIGNS[condition["is"]](total, condition["number"]))


def written(condition: Mapping[str, Any]) -> str:
    """A condition as people write it."""
    (_, first), *others = condition["terms"]
    left = first + "".join(f" {'+' if sign > 0 else '-'} {letter}" for sign, letter in others)
    return f"{left} {condition['is']} {condition['number']}"


def draw(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A puzzle of four to six letters with at least one solution."""
    letters = _LETTERS[: int(rng.integers(4, 7))]
    solution = dict(zip(letters, (rng.permutation(9)[: len(letters)] + 1).tolist(), strict=True))
    conditions = []
    for index, letter in enumerate(letters):  # every letter is in a condition
        count = int(rng.integers(1, 3))
        others = rng.permutation([other for other in letters if other != letter])[:count].tolist()
        terms = [[1, letter], *([pick(rng, (1, -1)), other] for other in others)]
        total = sum(sign * solution[name] for sign, name in terms)
        equal = index < 2 or bool(rng.integers(2))
        number = total if equal else total + int(rng.integers(1, 4))
        conditions.append({"terms": terms, "is": "=" if equal else "<", "number": number})
    listed = "\n".join(written(condition) for condition in conditions)
    prompt = (
        f"Give {', '.join(letters)} different digits from 1 to 9 so that all of this holds:\n{listed}\n"
        "Hand in an answer like A=1 B=2."
    )
    return prompt, {"solution": solution, "conditions": conditions}


tasks = DrawnTasks("Fill-v0", draw)
