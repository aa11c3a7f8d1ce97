"""Scripted players of SearchR1-v0 over the library's corpus: one that finds the answer, one that often does not look.

They see what a model sees and nothing else. Where they err they stop too soon; what they say always follows from the
last thing that they saw.
"""

import re
from collections.abc import Sequence

import numpy as np

from agar.agents.scripted import ScriptedPolicy
from agar.errors import ConfigError
from agar.examples.search_r1.env import answering, search_for
from agar.types import Message, ToolSpec, Turn

_FACTS = {
    "Which module has": r"It is in (`\S+`)",
    "What is the first parameter": r"first parameter is (`\S+`)",
    "Which class does": r"extends (`\S+`)",
    "What is listed first": r"[Ll]isted first in it is (`\S+`)",
}
_NAME = re.compile(r"`\S+?`")


def searcher(*, give_up: float = 0.0) -> ScriptedPolicy:
    """Search until the passage found holds the answer, then say it.

    Args:
        give_up: chance, before every search, to answer with the name last seen instead.

    Raises:
        ConfigError: it is no chance.
    """
    if not 0 <= give_up <= 1:
        raise ConfigError(f"give_up must be a chance between 0 and 1, got {give_up}")

    def policy(messages: Sequence[Message], tools: Sequence[ToolSpec], rng: np.random.Generator) -> Turn:
        question = next(message.text for message in messages if message.role == "user")
        passages = [message.text for message in messages if message.role == "tool"]
        seen = passages[-1] if passages else question
        wanted = next(fact for start, fact in _FACTS.items() if question.startswith(start))
        fact = re.search(wanted, seen) if passages else None
        if fact is not None:
            return answering(fact[1])
        name = _last_name(seen, first_passage=len(passages) == 1)
        if len(passages) > 1 or rng.random() < give_up:
            return answering(name)
        return search_for(f"module {name}" if passages else name, call=len(passages))

    return policy


def _last_name(seen: str, *, first_passage: bool) -> str:
    """The name that a question is about, or the module that a passage names."""
    names: list[str] = _NAME.findall(seen) or ["`?`"]
    return names[-1] if first_passage else names[0]
