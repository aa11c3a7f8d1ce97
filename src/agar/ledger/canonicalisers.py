"""Declared canonicalisers: what of a message's text counts when histories are compared."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from agar.errors import ConfigError, LedgerError
from agar.ledger.config import CanonicaliserConfig
from agar.types import MessageRole

TextFunction = Callable[[str], str]
"""From a text to what counts of it; equal texts give equal results."""

BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "clock": r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?",
        "uuid": r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        "billing_header": r"(?m)^x-[a-z-]*billing[a-z-]*:.*\n?",
    }
)
"""Patterns by name: ISO dates and times; UUIDs; the line with which some programs start their system prompt, other for
each request."""


class Canonicaliser:
    """The declared rules of a record policy, one after the other.

    Args:
        rules: what was declared.
    """

    def __init__(self, rules: Sequence[CanonicaliserConfig]) -> None:
        """Compile the patterns and import the functions.

        Raises:
            ConfigError: a rule names neither a built-in, nor a function that is there.
        """
        self._rules: dict[MessageRole, list[tuple[str, TextFunction]]] = {}
        for rule in rules:
            function = _function(rule)
            for role in rule.roles:
                self._rules.setdefault(role, []).append((rule.name, function))

    def __bool__(self) -> bool:
        """Whether anything was declared."""
        return bool(self._rules)

    def text(self, role: MessageRole, text: str) -> str:
        """What counts of a text.

        Raises:
            LedgerError: a declared function raised, or gave something other than text.
        """
        for name, function in self._rules.get(role, ()):
            try:
                text = function(text)
            except Exception as error:
                raise LedgerError(f"canonicaliser {name!r} raised {error!r} on a {role} message: mend it") from error
            if not isinstance(text, str):
                raise LedgerError(f"canonicaliser {name!r} gave a {type(text).__name__}, expected text: mend it")
        return text


@lru_cache
def canonicaliser_of(rules: tuple[CanonicaliserConfig, ...]) -> Canonicaliser:
    """The rules of a policy, compiled once.

    Raises:
        ConfigError: see `Canonicaliser`.
    """
    return Canonicaliser(rules)


def _function(rule: CanonicaliserConfig) -> TextFunction:
    if rule.function is not None:
        module, _, name = rule.function.partition(":")
        try:
            found: TextFunction = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"function {rule.function!r} of canonicaliser {rule.name!r} was not found ({error}): "
                "expected module:attr"
            ) from error
        return found
    pattern = rule.pattern or BUILT_IN.get(rule.name)
    if pattern is None:
        raise ConfigError(
            f"canonicaliser {rule.name!r} is none of the built-in ones {sorted(BUILT_IN)}: give it a pattern or a "
            "function"
        )
    compiled = re.compile(pattern)
    return lambda text: compiled.sub("", text)
