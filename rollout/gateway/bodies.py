"""Request bodies as JSON, and readers of the parts that all dialects have."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agar.ledger.canonical import spell, unfit
from agar.rollout.gateway.call import BadRequest, OutputForm
from agar.types import Part, TextPart, ToolCall, ToolSpec

Spelt = Mapping[str, Mapping[str, Any]]
"""Tool arguments that went out, by their text."""
Fingerprint = hashlib.blake2b
"""What a fingerprint is made with."""


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
    hashed = begin_fingerprint(dialect)
    hashed.update(body)
    return hashed.digest()


def begin_fingerprint(dialect: bytes) -> Fingerprint:
    """The hash that makes a fingerprint, with nothing of a body in it yet."""
    return hashlib.blake2b(digest_size=16, person=dialect)


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
        if isinstance(value, (dict, list)):
            require_fit(value, name)
    return wishes


def max_calls(
    choice: object, name: str | None, offered: Sequence[ToolSpec], *, listed: bool, single: bool
) -> int | None:
    """How many tool calls a caller takes of a reply; None for any number.

    Args:
        choice: its `tool_choice`, where that is `none` or `required`.
        name: the tool that its `tool_choice` names, if it names one.
        offered: the tools that the model is told of.
        listed: whether the request lists any tool, those that run elsewhere included.
        single: whether it forbids calls in parallel.

    Raises:
        BadRequest: its `tool_choice` asks for a tool that is not there.
    """
    if choice == "none":
        return 0
    if choice == "required" and not listed:
        raise BadRequest("tool_choice requires a tool, and tools holds none", "tool_choice")
    if name is not None and name not in {tool.name for tool in offered}:
        raise BadRequest(f"tool_choice names {name!r}, which tools does not hold", "tool_choice")
    return 1 if single else None


def form_of(field: str, asked: Any, schema: Mapping[str, Any]) -> OutputForm:
    """The form of output that a field asks for.

    Raises:
        BadRequest: its schema is nested too deeply.
    """
    require_fit(schema, field)
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


def require_fit(value: Any, where: str) -> None:
    """Refuse a value that cannot be kept, or told to every program alike.

    Raises:
        BadRequest: it is nested too deeply, or holds a number beyond 64 bits.
    """
    if (why := unfit(value)) is not None:
        raise BadRequest(f"{where}: its values {why}", where)


def too_deep(where: str) -> BadRequest:
    """The refusal of something that no walk should enter."""
    return BadRequest(f"{where} is nested too deeply", where)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
