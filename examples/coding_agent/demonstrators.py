"""Scripted players of RepairSmall-v0: one that mends what is wrong, one that often does not.

They see what a model sees, and know what the functions' names mean. Where the second one errs, it errs in what it does
(ending too soon, writing a line that is right for another function); what it reads and where it writes is right.
"""

import re
from collections.abc import Sequence

import numpy as np

from agar.agents.scripted import ScriptedPolicy
from agar.errors import ConfigError
from agar.examples.coding_agent.env import call
from agar.examples.coding_agent.library import ONE_LINERS
from agar.types import Message, ToolSpec, Turn

_LINES = {one.name: one.source.splitlines()[1].strip() for one in ONE_LINERS}
_FUNCTION = r"def {name}\((\w+), (\w+)\):\n    (.+)"


def mender(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
    """Find the function, read its file, mend its line, end."""
    return _next(messages, _function(messages))


def imperfect_mender(*, give_up: float = 0.4, mistake: float = 0.4) -> ScriptedPolicy:
    """A mender with bad habits: about a fifth of its repairs succeed.

    Args:
        give_up: chance to end at once, where the next step would be to read, and where it would be to mend.
        mistake: chance to write the line of another function.

    Returns:
        The policy. `give_up=0, mistake=0` is the mender.

    Raises:
        ConfigError: one of them is no chance.
    """
    if not (0 <= give_up <= 1 and 0 <= mistake <= 1):
        raise ConfigError(f"give_up and mistake must be chances between 0 and 1, got {give_up} and {mistake}")

    def policy(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
        name = _function(messages)
        fate = rng.random(2)
        steps = sum(message.role == "tool" for message in messages)
        if steps in (1, 2) and fate[0] < give_up:
            return Turn(text="done")
        others = [other for other in _LINES if other != name]
        meant = str(rng.choice(others)) if fate[1] < mistake else name
        return _next(messages, name, meant=meant)

    return policy


def _next(messages: Sequence[Message], name: str, *, meant: str = "") -> Turn:
    """The step that follows from what was seen last; what is written is right for the function `meant`."""
    seen = messages[-1]
    steps = sum(message.role == "tool" for message in messages)
    if seen.role == "user":
        return call(0, "search", text=f"def {name}(")
    if steps == 1:
        return call(1, "read", path=seen.text.partition(":")[0])
    if steps == 2 and (found := re.search(_FUNCTION.format(name=name), seen.text)):
        first, second, line = found.groups()
        path = str(messages[-2].tool_calls[0].arguments["path"])
        return call(2, "edit", path=path, old=line, new=_LINES[meant or name].format(a=first, b=second))
    return Turn(text="done")


def _function(messages: Sequence[Message]) -> str:
    return next(message.text for message in messages if message.role == "user").split()[0]
