"""What all dialects share on the way in: caches of what a caller sends again and again, and readers of its parts."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from agar.ledger.canonical import spell, unfit
from agar.rollout.gateway.call import BadRequest, OutputForm
from agar.types import Message, Part, TextPart, ToolCall, ToolSpec

Spelt = Mapping[str, Mapping[str, Any]]
"""Tool arguments that went out, by their text."""
_MAX_CACHED_TOOLS = 256
_MAX_CACHED_ROWS = 65_536
_MAX_CACHED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow:
    """One row of a request.

    Attributes:
        messages: what it says.
        respelled: whether tool arguments in it are spelt otherwise than `canonical.spell` does.
        unknown: fields that mean nothing here, by their place in the row.
    """

    messages: tuple[Message, ...]
    respelled: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTools:
    """The tools of a request: those that are offered to the model, and what is only kept in the record."""

    offered: tuple[ToolSpec, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The rows of a request; the attributes are those of `ReadRow`, `respelled` by index and `unknown` by place."""

    messages: tuple[Message, ...]
    respelled: frozenset[int]
    unknown: Mapping[str, Any]


RowReader = Callable[[Any, str, int, Spelt], ReadRow]
"""Reads a row (what stands there, the field and the place in it, the arguments that went out); raises `BadRequest`."""
ToolsReader = Callable[[list[Any]], ReadTools]
"""Reads the tools of a request; raises `BadRequest`."""


class ToolCache:
    """Tool lists by their JSON: agents send the same one with every call."""

    def __init__(self) -> None:
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
            if unfit(tools):
                raise too_deep("tools")
            if len(self._known) >= _MAX_CACHED_TOOLS:
                self._known.clear()
            known = self._known[key] = reader(tools)
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
    """

    def __init__(self, limit_bytes: int = _MAX_CACHED_BYTES) -> None:
        self.limit_bytes, self.held_bytes = limit_bytes, 0
        self._known: dict[RowReader, dict[bytes, ReadRow]] = {}
        self._spelt: dict[str, Mapping[str, Any]] = {}
        self._remembered: dict[str, tuple[tuple[Message, ...], tuple[ToolSpec, ...]]] = {}

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
        unknown: dict[str, Any] = {}
        for index, row in enumerate(rows):
            try:
                key = orjson.dumps(row)
            except TypeError:
                raise too_deep(f"{name}[{places[index] if places else index}]") from None
            found = known.get(key)
            if found is None:
                found = reader(row, name, places[index] if places else index, self._spelt)
                self._keep(known, bytes(memoryview(key)), found)  # orjson's own bytes keep the room they were made in
            if found.respelled:
                respelled += range(len(messages), len(messages) + len(found.messages))
            if found.unknown:
                unknown[f"{name}[{places[index] if places else index}]"] = found.unknown
            messages += found.messages
        return History(messages=tuple(messages), respelled=frozenset(respelled), unknown=unknown)

    def _keep(self, known: dict[bytes, ReadRow], key: bytes, found: ReadRow) -> None:
        if len(known) >= _MAX_CACHED_ROWS or self.held_bytes + len(key) > self.limit_bytes:
            for rows in self._known.values():
                rows.clear()
            self.held_bytes = 0
        if len(key) <= self.limit_bytes:
            known[key] = found
            self.held_bytes += len(key)

    def spell(self, arguments: Mapping[str, Any]) -> str:
        """The text of tool arguments that go out."""
        text = spell(arguments)
        self._spelt[text] = arguments
        return text

    def remember(self, reply: str, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> None:
        """Keep a conversation for a caller that will send only what comes after it.

        Args:
            reply: id of the last reply.
            messages: the conversation, that reply included.
            tools: what it offers.
        """
        self._remembered[reply] = (messages, tools)

    def recall(self, reply: str) -> tuple[tuple[Message, ...], tuple[ToolSpec, ...]] | None:
        """The messages and tools kept under a reply's id, or None."""
        return self._remembered.get(reply)


def read_object(body: bytes) -> dict[str, Any]:
    """A request body as a JSON object.

    Raises:
        BadRequest: it is none.
    """
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(request, dict):
        raise BadRequest("the body must be a JSON object")
    return request


def fingerprint(body: bytes, request: Mapping[str, Any], *, dialect: bytes, stream: bool) -> bytes:
    """Equal for equal bodies of a dialect; a stream equals the call without `stream` in compact JSON.

    Programs that lose a stream ask for the same reply again without one.
    """
    if stream:
        body = compact({name: value for name, value in request.items() if name not in ("stream", "stream_options")})
    return hashlib.blake2b(body, digest_size=16, person=dialect).digest()


def compact(request: Mapping[str, Any]) -> bytes:
    """A request in compact JSON.

    Raises:
        BadRequest: it is nested too deeply.
    """
    try:
        return orjson.dumps(request)
    except TypeError:
        raise too_deep("the body") from None


def wishes_of(request: Mapping[str, Any], read: frozenset[str], *further: Mapping[str, Any]) -> dict[str, Any]:
    """What a request holds beside the fields that are read: it has no effect and is kept in the record.

    Args:
        request: the body.
        read: names of the fields that are read.
        further: what else is kept.

    Raises:
        BadRequest: something in it is nested too deeply to be kept.
    """
    wishes = {name: value for name, value in request.items() if name not in read and value is not None}
    for more in further:
        if more:
            wishes |= more
    for name, value in wishes.items():
        if isinstance(value, (dict, list)) and unfit(value):
            raise too_deep(name)
    return wishes


def form_of(field: str, asked: Any, schema: Mapping[str, Any]) -> OutputForm:
    """The form of output that a field asks for.

    Raises:
        BadRequest: its schema is nested too deeply.
    """
    if unfit(schema):
        raise too_deep(field)
    return OutputForm(field=field, asked=asked, schema=spell(schema))


def joined(parts: Sequence[Part], separator: str = "") -> str | tuple[Part, ...]:
    """Content of several parts; text alone becomes a string."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return separator.join(texts) if len(texts) == len(parts) else tuple(parts)


def read_arguments(raw: Any, where: str) -> dict[str, Any]:
    """Tool arguments, as JSON text or as an object.

    Raises:
        BadRequest: they are no JSON object.
    """
    if raw is None or raw == "":
        return {}
    try:
        value = raw if isinstance(raw, dict) else _decode(raw)
        if not isinstance(value, dict):
            raise ValueError("not an object")
        if (why := unfit(value)) is not None:
            raise ValueError(f"they {why}")
        if not isinstance(raw, str) or "\\u" in raw:  # a lone surrogate has no UTF-8 form
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequest(f"{where}: arguments must be the JSON text of an object ({error})", where) from None
    return value


def read_call(id: Any, name: Any, raw: Any, where: str, spelt: Spelt) -> tuple[ToolCall, bool]:
    """A tool call whose arguments are JSON text, and whether they are spelt otherwise than `canonical.spell` does.

    Raises:
        BadRequest: it has no name, or its arguments are no JSON object.
    """
    if not isinstance(name, str):
        raise BadRequest(f"{where} must hold function calls with a name", where)
    arguments = spelt.get(raw) if isinstance(raw, str) else None
    respelled = arguments is None
    if arguments is None:
        arguments = read_arguments(raw, where)
        respelled = spell(arguments) != raw
    return ToolCall(id="" if id is None else str(id), name=name, arguments=arguments), respelled


def tool_of(name: str, description: str | None, parameters: Mapping[str, Any] | None) -> ToolSpec:
    """A tool as the model is told of it."""
    if parameters is None:
        return ToolSpec(name=name, description=description or "")
    return ToolSpec(name=name, description=description or "", parameters=parameters)


def too_deep(where: str) -> BadRequest:
    """The refusal of something that no walk should enter."""
    return BadRequest(f"{where} is nested too deeply", where)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
