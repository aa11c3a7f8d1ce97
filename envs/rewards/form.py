"""The form of a reply: a pattern, a length."""

import re
from collections.abc import Callable
from typing import Literal

from agar.envs.rubric import Conversation
from agar.errors import ConfigError

_UNITS: dict[str, Callable[[str], int]] = {"words": lambda text: len(text.split()), "characters": len}


def matches(pattern: str) -> Callable[[Conversation], float]:
    """1 if all of the reply has the form of a regular expression (`.` matches line ends too), else 0.

    Raises:
        ConfigError: it is no regular expression.
    """
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is no regular expression: {error}") from error
    return lambda told: float(compiled.fullmatch(told.reply.strip()) is not None)


def length(
    *, most: int, least: int = 0, limit: int | None = None, unit: Literal["words", "characters"] = "words"
) -> Callable[[Conversation], float]:
    """1 for a reply of `least` to `most` words, falling to 0 at `limit`; 0 beyond it and below `least`.

    Source of the soft end: the overlong penalty of DAPO (Yu et al., 2025), here from 1 to 0.

    Args:
        most: the longest reply that gets all of it.
        least: the shortest that gets any.
        limit: where nothing is left; None: right behind `most`.
        unit: what is counted.

    Raises:
        ConfigError: the numbers are out of order.
    """
    end = most + 1 if limit is None else limit
    if not 0 <= least <= most < end:
        raise ConfigError(f"expected 0 <= least <= most < limit, got {least}, {most}, {end}")
    count = _UNITS[unit]

    def score(told: Conversation) -> float:
        n = count(told.reply)
        return 0.0 if n < least or n >= end else min(1.0, (end - n) / (end - most))

    return score
