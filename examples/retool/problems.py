"""Small problems, drawn from a seed: a chain of assignments, whose last value is asked for.

`a = 47 * 6; b = a - 13; b?` takes three cells that lean on each other's variables, or one that does it all.
"""

import itertools
from typing import Any

import numpy as np

from agar.envs.library.drawn import DrawnTasks

NAMES = "abc"


def draw(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A problem: its text, the cells that solve it one statement at a time, and the answer."""
    length = int(rng.integers(1, len(NAMES) + 1))
    cells = [f"{NAMES[0]} = {int(rng.integers(11, 99))} * {int(rng.integers(3, 10))}"]
    for before, name in itertools.pairwise(NAMES[:length]):
        sign = ("+", "-", "*")[int(rng.integers(3))]
        number = int(rng.integers(3, 10)) if sign == "*" else int(rng.integers(11, 99))
        cells.append(f"{name} = {before} {sign} {number}")
    last = NAMES[length - 1]
    return f"{'; '.join(cells)}; {last}?", {"cells": [*cells, last], "answer": _value(cells, last)}


def _value(cells: list[str], name: str) -> int:
    values: dict[str, int] = {}
    for cell in cells:
        target, _, expression = cell.partition(" = ")
        left, sign, right = expression.split()
        first = values[left] if left in values else int(left)
        second = int(right)
        values[target] = first + second if sign == "+" else first - second if sign == "-" else first * second
    return values[name]


problems = DrawnTasks("ReToolSmall-v0", draw)
