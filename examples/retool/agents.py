"""Scripted players of ReToolSmall-v0: one that works everything out, one that often does not.

They see what a model sees and nothing else. Where the second one errs, it errs in what it does (answering too soon,
leaving out a step); what it says always follows from the last number that it saw.
"""

import re
from collections.abc import Sequence

import numpy as np

from agar.agents.scripted import ScriptedPolicy
from agar.errors import ConfigError
from agar.examples.retool.env import boxed, run
from agar.types import Message, ToolSpec, Turn


def reasoner(*, give_up: float = 0.0, skip: float = 0.0) -> ScriptedPolicy:
    """Run the problem's statements one by one, then its last name, then say what was shown.

    Args:
        give_up: chance, before every cell, to answer with the last number seen instead.
        skip: chance, at every cell but the last, to leave it out.

    Raises:
        ConfigError: one of them is no chance.
    """
    if not (0 <= give_up <= 1 and 0 <= skip <= 1):
        raise ConfigError(f"give_up and skip must be chances between 0 and 1, got {give_up} and {skip}")

    def policy(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
        question = next(message.text for message in messages if message.role == "user")
        cells = [part.removesuffix("?") for part in question.split("; ")]
        made = [call.arguments["code"] for message in messages for call in message.tool_calls]
        following = cells.index(made[-1]) + 1 if made else 0
        if following == len(cells):
            return boxed(_last_number(messages))
        fate = rng.random(2)
        if fate[0] < give_up:
            return boxed(_last_number(messages))
        if fate[1] < skip and following < len(cells) - 1:
            following += 1
        return run(cells[following], call=len(made))

    return policy


def _last_number(messages: Sequence[Message]) -> str:
    """The last number in what was seen last, or else in the question; 0 where there is none."""
    question = next(message for message in messages if message.role == "user")
    for message in (messages[-1], question):
        if found := re.findall(r"-?\d+", message.text):
            return str(found[-1])
    return "0"
