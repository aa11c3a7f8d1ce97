"""A scripted batch, and the right numbers for it: from the script alone, in fractions, as the papers have them.

Nothing of agar is used here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Numbers = Sequence[Fraction]


@dataclass(frozen=True, slots=True)
class Plot:
    """One attempt: the environment's reward, None where it fails, and the tokens of each conversation."""

    reward: Fraction | None
    tokens: tuple[int, ...]


def plot(reward: str | None, *tokens: int) -> Plot:
    return Plot(None if reward is None else Fraction(reward), tokens)


SCRIPT = {
    "three rows": [plot("3", 2, 3, 4), plot("1", 5), plot("0", 3), plot("0", 2)],
    "a failure": [plot("1", 4), plot(None, 7), plot("1/4", 2), plot("1/2", 3)],
    "incomparable": [plot("5", 9)] * 4,
    "constant": [plot("3/4", 3), plot("3/4", 2), plot("3/4", 6), plot("3/4", 2)],
    "one left": [plot("2", 4), plot(None, 3), plot(None, 3), plot(None, 3)],
}
BONUS = Fraction(1, 2)
"""What the group stage gives to the best attempts; it raises for one task."""
KEPT = [task for task in SCRIPT if task != "incomparable"]

Key = tuple[str, int]
"""A trajectory: task and attempt."""


def mean(values: Numbers) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def deviation(values: Numbers, added: float = 0.0) -> float:
    """The square root of the sample variance, and of what is added to it."""
    return math.sqrt(sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1) + added)


def rewards() -> dict[str, dict[Key, Fraction]]:
    """What the attempts of each group came to; those that failed are in no group."""
    groups: dict[str, dict[Key, Fraction]] = {}
    for task in KEPT:
        paid = {(task, index): p.reward for index, p in enumerate(SCRIPT[task]) if p.reward is not None}
        groups[task] = {key: r + BONUS * (r == max(paid.values())) for key, r in paid.items()}
    return groups


def tokens() -> dict[Key, int]:
    return {key: sum(SCRIPT[key[0]][key[1]].tokens) for group in rewards().values() for key in group}


def centred() -> dict[Key, Fraction]:
    return {key: r - mean(list(group.values())) for group in rewards().values() for key, r in group.items()}


def over_deviation() -> dict[Key, float]:
    return {
        key: float(centred()[key]) / (deviation(list(group.values())) + 1e-6) if len(group) > 1 else 0.0
        for group in rewards().values()
        for key in group
    }


def against_the_others() -> dict[Key, Fraction]:
    found: dict[Key, Fraction] = {}
    for group in rewards().values():
        for key, reward in group.items():
            others = [r for other, r in group.items() if other != key]
            found[key] = reward - mean(others) if others else Fraction(0)
    return found


def normalised(values: Mapping[Key, Fraction]) -> dict[Key, float]:
    """Over the batch: every trained token has the value of its trajectory."""
    each = [value for key, value in values.items() for _ in range(tokens()[key])]
    return {key: float(value - mean(each)) / deviation(each, added=1e-8) for key, value in values.items()}


def raw() -> dict[Key, Fraction]:
    return {key: reward for group in rewards().values() for key, reward in group.items()}


def normalised_where_it_differs() -> dict[Key, float]:
    return {key: value if centred()[key] else 0.0 for key, value in normalised(centred()).items()}


ADVANTAGES = {
    "grpo": over_deviation,
    "gspo": over_deviation,
    "cispo": over_deviation,
    "dr_grpo": centred,
    "rloo": against_the_others,
    "reinforce_plus_plus": lambda: normalised(raw()),
    "reinforce_plus_plus_baseline": normalised_where_it_differs,
}
CONSTANT = 16
WEIGHTS = {
    "token_mean": lambda key: Fraction(1, sum(tokens().values())),
    "trajectory_mean": lambda key: Fraction(1, tokens()[key] * len(tokens())),
    "constant": lambda key: Fraction(1, CONSTANT * len(tokens())),
}
