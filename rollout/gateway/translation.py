"""What all dialects share on the way in: caches of what a caller sends again and again, and readers of its parts."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from agar.ledger.canonical import nested_within, spell
from agar.rollout.gateway.call import BadRequest
from agar.types import Message, Part, TextPart, ToolCall, ToolSpec

Spelt = Mapping[str, Mapping[str, Any]]
"""Tool arguments that went out, by their text."""
MessageReader = Callable[[Any, str, Spelt], tuple[tuple[Message, ...], bool]]
"""One row of a request (the row, where it stands, the arguments that went out) to its messages, and whether tool
arguments in it are spelt otherwise than `canonical.spell` does. It raises `BadRequest` for what is no message."""
ToolsReader = Callable[[Any], tuple[ToolSpec, ...]]
"""The tools of a request to their specifications; raises `BadRequest`."""
_MAX_CACHED_TOOLS = 256


class ToolCache:
    """Tool lists by their JSON: agents send the same one with every call."""

    def __init__(self) -> None:
        self._known: dict[tuple[ToolsReader, bytes], tuple[ToolSpec, ...]] = {}

    def read(self, tools: Any, reader: ToolsReader) -> tuple[ToolSpec, ...]:
        """The tools of a request; equal JSON gives the same tuple.

        Raises:
            BadRequest: they are nested too deeply, or `reader` refuses them.
        """
        if not tools:
            return ()
        try:
            key = (reader, orjson.dumps(tools))
        except TypeError:
            raise too_deep("tools") from None
        known = self._known.get(key)
        if known is None:
            if not nested_within(tools):
                raise too_deep("tools")
            if len(self._known) >= _MAX_CACHED_TOOLS:
                self._known.clear()
            known = self._known[key] = reader(tools)
        return known


class MessageCache:
    """The messages of one session by their JSON: a caller sends its whole history with every call.

    Equal JSON gives the same `Message` objects, and tool arguments that come back as they went out are the same object
    as in the record: the ledger compares by identity before it looks inside.
    """

    def __init__(self) -> None:
        self._known: dict[MessageReader, dict[bytes, tuple[tuple[Message, ...], bool]]] = {}
        self._spelt: dict[str, Mapping[str, Any]] = {}
        self._remembered: dict[str, tuple[tuple[Message, ...], tuple[ToolSpec, ...]]] = {}

    def read(self, rows: Any, reader: MessageReader, *, name: str = "messages") -> tuple[list[Message], frozenset[int]]:
        """The messages in `rows`, and the indexes of those whose tool arguments are spelt otherwise than we do.

        Args:
            rows: what the field `name` holds.
            reader: reads one row.
            name: the field.

        Raises:
            BadRequest: it is no list of messages.
        """
        if not isinstance(rows, list) or not rows:
            raise BadRequest(f"{name} must be a list with at least one message", name)
        known = self._known.setdefault(reader, {})
        messages: list[Message] = []
        respelled: list[int] = []
        for index, row in enumerate(rows):
            try:
                key = orjson.dumps(row)
            except TypeError:
                raise too_deep(f"{name}[{index}]") from None
            found = known.get(key)
            if found is None:
                found = known[key] = reader(row, f"{name}[{index}]", self._spelt)
            if found[1]:
                respelled += range(len(messages), len(messages) + len(found[0]))
            messages += found[0]
        return messages, frozenset(respelled)

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


def refuse(request: Mapping[str, Any], refused: Mapping[str, tuple[object, ...]]) -> None:
    """Refuse fields that would change the meaning of the reply and cannot be honoured.

    Args:
        request: the body.
        refused: by field, the values that are fine.

    Raises:
        BadRequest: one has another value.
    """
    for name, served in refused.items():
        if name in request and request[name] not in served:
            raise BadRequest(f"{name} = {request[name]!r} is not served here: leave it out", name, "unsupported_value")


def read_stream(request: Mapping[str, Any]) -> bool:
    """Whether the reply is wanted as events.

    Raises:
        BadRequest: `stream` is no boolean.
    """
    wanted = request.get("stream")
    if wanted is not None and not isinstance(wanted, bool):
        raise BadRequest(f"stream must be true or false, got {wanted!r}", "stream")
    return bool(wanted)


def fingerprint(body: bytes, request: Mapping[str, Any], *, dialect: bytes, stream: bool) -> bytes:
    """Equal for equal bodies of a dialect; a stream equals the call without `stream` in compact JSON.

    Programs that lose a stream ask for the same reply again without one.
    """
    if stream:
        rest = {name: value for name, value in request.items() if name not in ("stream", "stream_options")}
        body = orjson.dumps(rest)
    return hashlib.blake2b(body, digest_size=16, person=dialect).digest()


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
        if not nested_within(value):
            raise ValueError("nested too deeply")
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


def read_tool(row: Mapping[str, Any], schema: str, where: str) -> ToolSpec:
    """A tool from its name, its description and the JSON schema in field `schema`.

    Raises:
        BadRequest: one of them is of another kind.
    """
    if not isinstance(row.get("name"), str):
        raise BadRequest(f"{where} must have a name", where, "unsupported_value")
    parameters = row.get(schema)
    if parameters is not None and not isinstance(parameters, dict):
        raise BadRequest(f"{where}.{schema} must be a JSON schema", where)
    description = row.get("description") or ""
    if not isinstance(description, str):
        raise BadRequest(f"{where}.description must be a string", where)
    if parameters is None:
        return ToolSpec(name=row["name"], description=description)
    return ToolSpec(name=row["name"], description=description, parameters=parameters)


def too_deep(where: str) -> BadRequest:
    """The refusal of something that no walk should enter."""
    return BadRequest(f"{where} is nested too deeply", where)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
