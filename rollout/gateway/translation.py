"""Caches of what a caller sends again and again: its tools and the messages of its history."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from agar.ledger.canonical import spell
from agar.rollout.gateway.bodies import Spelt, require_fit, too_deep
from agar.rollout.gateway.call import BadRequest, Reply
from agar.rollout.gateway.continued import Bodies
from agar.types import Message, ToolSpec

_MAX_CACHED_TOOLS = 256
_MAX_CACHED_ROWS = 65_536
_MAX_CACHED_BYTES = 64 * 1024 * 1024


_NONE: Mapping[str, Any] = MappingProxyType({})


class ReadRow(NamedTuple):  # a tuple, as `History` is, since every call makes some
    """One row of a request.

    Attributes:
        messages: what it says.
        respelled: whether tool arguments in it are spelt otherwise than `canonical.spell` does.
        unknown: fields that mean nothing here, by their place in the row.
    """

    messages: tuple[Message, ...]
    respelled: bool = False
    unknown: Mapping[str, Any] = _NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTools:
    """The tools of a request: those that are offered to the model, and what is only kept in the record."""

    offered: tuple[ToolSpec, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)


class History(NamedTuple):
    """The rows of a request; the attributes are those of `ModelCall`."""

    messages: tuple[Message, ...]
    respelled: frozenset[int] = frozenset()
    unknown: Mapping[str, tuple[int, Mapping[str, Any]]] = _NONE


RowReader = Callable[[Any, str, int, Spelt], ReadRow]
"""Reads a row (what stands there, the field and the place in it, the arguments that went out); raises `BadRequest`."""
ToolsReader = Callable[[list[Any]], ReadTools]
"""Reads the tools of a request; raises `BadRequest`."""


class ToolCache:
    """Tool lists by their JSON: agents send the same one with every call.

    Args:
        limit_bytes: how much JSON it keeps.

    Attributes:
        held_bytes: how much JSON it keeps now.
    """

    def __init__(self, limit_bytes: int = _MAX_CACHED_BYTES) -> None:
        self.limit_bytes, self.held_bytes = limit_bytes, 0
        self._known: dict[tuple[ToolsReader, bytes], ReadTools] = {}

    def read(self, tools: list[Any] | None, reader: ToolsReader) -> ReadTools:
        """The tools of a request; equal JSON gives the same object.

        Raises:
            BadRequest: they are nested too deeply, or `reader` refuses them.
        """
        if not tools:
            return _NO_TOOLS
        try:
            key = (reader, orjson.dumps(tools))
        except TypeError:
            raise too_deep("tools") from None
        known = self._known.get(key)
        if known is None:
            require_fit(tools, "tools")
            known = reader(tools)
            size = len(key[1])
            if len(self._known) >= _MAX_CACHED_TOOLS or self.held_bytes + size > self.limit_bytes:
                self._known.clear()
                self.held_bytes = 0
            if size <= self.limit_bytes:
                self._known[key] = known
                self.held_bytes += size
        return known


_NO_TOOLS = ReadTools()


class MessageCache:
    """The messages of one session by their JSON: a caller sends its whole history with every call.

    Equal JSON gives the same `Message` objects, and tool arguments that come back as they went out are the same object
    as in the record: the ledger compares by identity before it looks inside.

    Args:
        limit_bytes: how much JSON it keeps; a caller that sends more begins anew, and pays with time.

    Attributes:
        held_bytes: how much JSON it keeps now.
        chats: the chat completions that were read last.
    """

    def __init__(self, limit_bytes: int = _MAX_CACHED_BYTES) -> None:
        self.limit_bytes, self.held_bytes = limit_bytes, 0
        self.chats = Bodies("messages", dialect=b"chat")
        self._known: dict[RowReader, dict[bytes, ReadRow]] = {}
        self._spelt: dict[str, Mapping[str, Any]] = {}
        self._remembered: dict[str, tuple[tuple[Message, ...], tuple[ToolSpec, ...]]] = {}
        self._replies: dict[str, tuple[Reply, str]] = {}
        self._last_stop: str | None = None  # the id of the latest reply of a budget

    def read(
        self,
        rows: Sequence[Any],
        reader: RowReader,
        *,
        name: str = "messages",
        places: Sequence[int] | None = None,
        before: Sequence[Message] = (),
    ) -> History:
        """The messages in `rows`.

        Args:
            rows: what the field `name` holds.
            reader: reads one row.
            name: the field.
            places: where in it the rows stand; in order if None.
            before: messages that come before those.

        Raises:
            BadRequest: there is no row, or one is no message.
        """
        if not rows:
            raise BadRequest(f"{name} must hold at least one message", name)
        known = self._known.setdefault(reader, {})
        messages: list[Message] = [*before]
        respelled: list[int] = []
        unknown: dict[str, tuple[int, Mapping[str, Any]]] = {}
        for index, row in enumerate(rows):
            try:
                key = orjson.dumps(row)
            except TypeError:
                raise too_deep(f"{name}[{places[index] if places else index}]") from None
            found = known.get(key)
            if found is None:
                found = reader(row, name, places[index] if places else index, self._spelt)
                if found.unknown:
                    require_fit(found.unknown, f"{name}[{places[index] if places else index}]")
                self._keep(known, key, found)
            if found.respelled:
                respelled += range(len(messages), len(messages) + len(found.messages))
            if found.unknown:
                unknown[f"{name}[{places[index] if places else index}]"] = (len(messages), found.unknown)
            messages += found.messages
        return History(messages=tuple(messages), respelled=frozenset(respelled), unknown=unknown)

    def expect(self, row: bytes, read: ReadRow, reader: RowReader) -> None:
        """Know a row that goes out before it comes back, as `reader` would read it."""
        known = self._known.setdefault(reader, {})
        if row not in known:
            self._keep(known, row, read)

    def _keep(self, known: dict[bytes, ReadRow], key: bytes, found: ReadRow) -> None:
        if len(known) >= _MAX_CACHED_ROWS or self.held_bytes + len(key) > self.limit_bytes:
            for rows in self._known.values():
                rows.clear()
            self.held_bytes = 0
        if len(key) <= self.limit_bytes:
            known[bytes(memoryview(key))] = found  # orjson's own bytes keep the room they were made in
            self.held_bytes += len(key)

    def spell(self, arguments: Mapping[str, Any]) -> str:
        """The text of tool arguments that go out."""
        text = spell(arguments)
        self._spelt[text] = arguments
        return text

    def remember(self, reply: Reply, model: str, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> None:
        """Keep a conversation for a caller that will send only what comes after it.

        Replies of budgets cost nothing and have no end: of those only the latest is kept.

        Args:
            reply: the last reply.
            model: the model's name as the caller knows it.
            messages: the conversation, that reply included.
            tools: what it offers.
        """
        if reply.node is None:
            if self._last_stop is not None:
                self.forget(self._last_stop)
            self._last_stop = reply.id
        self._remembered[reply.id] = (messages, tools)
        self._replies[reply.id] = (reply, model)

    def recall(self, reply: str) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]] | None:
        """The messages and tools kept under a reply's id, or None."""
        return self._remembered.get(reply)

    def reply(self, id: str) -> tuple[Reply, str] | None:
        """The reply that was kept under an id, and its model's name; None where none is."""
        return self._replies.get(id)

    def forget(self, id: str) -> bool:
        """Keep a conversation no longer; gives whether it was kept."""
        self._remembered.pop(id, None)
        return self._replies.pop(id, None) is not None
