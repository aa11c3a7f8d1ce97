"""Tools as chat templates know them, and their JSON: sessions offer the same ones again and again."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agar.types import ToolSpec

ToolRow = dict[str, Any]
"""A tool as chat templates know it, its strings quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Tools, their rows, and what was written of these: by the id of a part of them and how it is written."""

    tools: Sequence[ToolSpec] = ()
    rows: Sequence[ToolRow] = ()
    written: dict[Hashable, str] = field(default_factory=dict)


class ToolRows:
    """The rows of the tools that were offered last are kept, where they are the very same again.

    Args:
        quote: quotes a string.
    """

    def __init__(self, quote: Callable[[str], str]) -> None:
        self._quote = quote
        self._last = _Told()

    def of(self, tools: Sequence[ToolSpec]) -> Sequence[ToolRow]:
        """The rows of tools; they are not to be changed."""
        if tools is not self._last.tools or not isinstance(tools, tuple):
            self._last = _Told(tools=tools, rows=[self._row(tool) for tool in tools])
        return self._last.rows

    def written(self, value: Any, how: Hashable, write: Callable[[], str]) -> str:
        """What `write` makes of a value; of a row, or the function in it, it is kept.

        Args:
            value: from a template.
            how: the form in which it is written.
            write: writes it.
        """
        told = self._last
        if not any(value is row or value is row.get("function") for row in told.rows):
            return write()
        place = (id(value), how)
        if place not in told.written:
            told.written[place] = write()
        return told.written[place]

    def _row(self, tool: ToolSpec) -> ToolRow:
        function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        row: ToolRow = each_string({"type": "function", "function": function}, self._quote)
        return row


def each_string(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (dict, Mapping)):  # asking for a dict first is much cheaper
        return {each_string(key, change): each_string(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [each_string(item, change) for item in value]
    return value
