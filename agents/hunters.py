"""Scripted players of Hunt-v0: one that finds the gold, one that often does not, one that does not look.

They see what a model sees and nothing else. Where they err they err in what they do (stopping too soon, opening a
wrong box); what they say always follows from the last thing they saw.
"""

from collections.abc import Sequence

import numpy as np

from agar.agents.scripted import ScriptedPolicy
from agar.envs.library.hunt import AMOUNTS, BOXES, open_box
from agar.envs.parsing import parse_int
from agar.errors import ConfigError
from agar.types import Message, ToolSpec, Turn


def gold_hunter(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
    """Open the box last named, until the gold is there; then say how much."""
    seen = messages[-1]
    number = _number(seen)
    if seen.role == "tool" and not seen.text.startswith("box"):
        return Turn(text=str(number))
    return open_box(number, call=_calls(messages))


def imperfect_hunter(*, give_up: float = 0.65, astray: float = 0.15) -> ScriptedPolicy:
    """A hunter with bad habits: about a quarter of its hunts succeed.

    Args:
        give_up: chance, after every box, to say the number last seen instead of going on.
        astray: chance, at every box, to open another one instead.

    Returns:
        The policy. `give_up=0, astray=0` is the gold hunter.

    Raises:
        ConfigError: the chances are negative or add to more than 1.
    """
    if give_up < 0 or astray < 0 or give_up + astray > 1:
        raise ConfigError(f"give_up and astray must be >= 0 and add to at most 1, got {give_up} and {astray}")

    def policy(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
        seen = messages[-1]
        if seen.role == "tool" and not seen.text.startswith("box"):
            return gold_hunter(messages, tools, rng)
        number = _number(seen)
        fate = float(rng.random())
        if fate < astray:
            number = int(rng.choice([other for other in BOXES if other != number]))
        elif fate < astray + give_up and seen.role == "tool":
            return Turn(text=str(number))
        return open_box(number, call=_calls(messages))

    return policy


def blind_answerer(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
    """Say some amount without opening a box."""
    return Turn(text=str(int(rng.choice(AMOUNTS))))


def _number(message: Message) -> int:
    number = parse_int(message.text)
    return 0 if number is None else number


def _calls(messages: Sequence[Message]) -> int:
    return sum(len(message.tool_calls) for message in messages)
