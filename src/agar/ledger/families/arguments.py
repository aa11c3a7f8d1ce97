"""Arguments that a model wrote as bare text between tags: the tool's schema says what they are."""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agar.ledger.canonical import unfit
from agar.ledger.families.calls import UnreadableCall, read_json
from agar.types import ToolSpec


def typed(text: str, tool: str, argument: str, tools: Sequence[ToolSpec]) -> Any:
    """The value of one argument.

    A string where the schema says string; else the JSON value that the text spells (or Python's spelling of it, which
    some templates teach), else the text itself. Without a schema the text `5` is a number.

    Args:
        text: as written.
        tool: the tool's name.
        argument: the argument's name.
        tools: what was offered.
    """
    types = _types(_schema(tool, argument, tools))
    if "string" in types:
        return None if text == "null" and "null" in types else text
    try:
        value = read_json(text)
    except UnreadableCall:
        value = _python(text)
    return text if isinstance(value, str) or unfit(value) else value


def _schema(tool: str, argument: str, tools: Sequence[ToolSpec]) -> Any:
    for spec in tools:
        if spec.name == tool:
            properties = spec.parameters.get("properties", {})
            return properties.get(argument) if isinstance(properties, Mapping) else None
    return None


def _types(schema: Any) -> frozenset[str]:
    """The JSON types that a schema allows; empty where it does not say."""
    if not isinstance(schema, Mapping):
        return frozenset()
    named = schema.get("type")
    found = {named} if isinstance(named, str) else set(named) if isinstance(named, (list, tuple)) else set()
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        found |= _types(choice)
    if not found and isinstance(schema.get("enum"), (list, tuple)):
        found = {"string" if isinstance(value, str) else "null" if value is None else "?" for value in schema["enum"]}
    return frozenset(found)


def _python(text: str) -> Any:
    """Python's spelling of a JSON value, as JSON has it (lists for tuples, keys as text); else the text itself."""
    try:
        return read_json(json.dumps(ast.literal_eval(text), allow_nan=False))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text
