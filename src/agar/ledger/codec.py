"""Frozen dataclasses to one line of JSON and back, byte for byte.

Arrays are base64 of their little-endian bytes with their dtype, so that every float32 returns with the same bits.
Fields are read by the annotations of the dataclass; an unknown or a missing field is an error, not a guess.
"""

import base64
import dataclasses
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

import numpy as np

from agar.errors import LedgerError
from agar.types import Finish, ImagePart, Sampled, TextPart

T = TypeVar("T")
_PLAIN = frozenset({str, int, float, bool, types.NoneType})
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes the JSON of a trace of one format version into that of the next."""


def dump_line(version: int, value: Any) -> bytes:
    """One line of JSON, without the line end: `{"format": "agar-trace", "version": N, "trace": ...}`.

    Raises:
        LedgerError: something in it has no form in JSON.
    """
    document = {"format": "agar-trace", "version": version, "trace": _encode(value)}
    try:
        return json.dumps(document, ensure_ascii=True, separators=(",", ":"), allow_nan=True).encode("ascii")
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"a trace cannot be written: {error}; give plain values (text, numbers, lists, tables) in what goes along "
            "with it, such as a task's payload"
        ) from error


def plain(value: Any) -> Any:
    """The value as JSON has it, as far as it can: frozen dataclasses, enums, numpy's numbers and arrays."""
    return _encode(value)


def load_line(version: int, line: bytes, kind: type[T], upgrades: Mapping[int, Upgrade] | None = None) -> T:
    """Read what `dump_line` wrote, now or in an older version.

    Args:
        version: the version that `kind` has now.
        line: one line.
        kind: the dataclass.
        upgrades: how a document of a version becomes one of the next.

    Raises:
        LedgerError: not this format, an unknown version, or a field that is unknown, missing or malformed.
    """
    try:
        document = json.loads(line)
        if document["format"] != "agar-trace":
            raise LedgerError(f"expected an agar-trace, got {document['format']!r}")
        found, trace = document["version"], document["trace"]
        for step in range(_known(found, version, upgrades or {}), version):
            trace = (upgrades or {})[step](trace)
        return typing.cast(T, _decode(trace, kind))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"not a trace line ({error!r}): it was cut, or something else wrote it") from error


def version_of(line: bytes) -> int:
    """The format version that a line which `load_line` reads was written in."""
    return int(json.loads(line)["version"])


def _known(found: Any, version: int, upgrades: Mapping[int, Upgrade]) -> int:
    if isinstance(found, int) and not isinstance(found, bool):
        if found > version:
            raise LedgerError(
                f"a trace of format version {found}; this agar reads up to {version}: read it with a newer agar"
            )
        if all(step in upgrades for step in range(found, version)):
            return found
    raise LedgerError(
        f"a trace of format version {found!r}, which this agar (at {version}) does not know: read it with the "
        "agar that wrote it"
    )


def _encode(value: Any) -> Any:
    if value.__class__ in _PLAIN:
        return value
    if isinstance(value, Sampled):
        return {
            "token_ids": _encode(value.token_ids),
            "logprobs": _encode(value.logprobs),
            "policy_versions": _encode(value.policy_versions),
            "finish": value.finish.value,
            "side": {name: _encode(array) for name, array in value.side.items()},
        }
    if names := _names(value.__class__):
        told = {name: _encode(getattr(value, name)) for name in names}
        for name in _floats(value.__class__):
            told[name] = _as_floats(told[name])
        return told
    if isinstance(value, np.ndarray):
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        data = base64.b64encode(little.tobytes()).decode("ascii")
        return {"dtype": little.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _as_floats(value: Any) -> Any:
    """`1` as `1.0`, which is what is read again where a number with a fraction is declared."""
    if isinstance(value, dict):
        return {key: _as_floats(item) for key, item in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _decode(value: Any, kind: Any) -> Any:
    if kind is Any or value.__class__ is kind:
        return value
    origin, arguments = _parts(kind)
    if origin is np.ndarray:
        return _array(value)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(value, arguments)
    if origin is tuple:
        return tuple(_decode(item, arguments[0]) for item in value)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"{value!r} is none of {arguments}")
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {_decode_key(key, arguments[0]): _decode(item, arguments[1]) for key, item in value.items()}
    if kind is Sampled:
        side = {name: _array(item) for name, item in value["side"].items()}
        arrays = {name: _array(value[name]) for name in ("token_ids", "logprobs", "policy_versions")}
        return Sampled.restore(**arrays, finish=Finish(value["finish"]), side=side)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(value, typing.cast("type[Any]", kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind}, got {value!r}")
    return value


def _decode_dataclass(value: Any, kind: type[Any]) -> Any:
    hints = _hints(kind)  # type: ignore[arg-type]
    if set(value) != set(hints):
        raise LedgerError(f"{kind.__name__} has fields {sorted(hints)}, got {sorted(value)}")
    return kind(**{name: _decode(item, hints[name]) for name, item in value.items()})


def _decode_union(value: Any, arguments: tuple[Any, ...]) -> Any:
    if value is None and type(None) in arguments:
        return None
    for option in arguments:
        if option is str and isinstance(value, str):
            return value
        if get_origin(option) is tuple and isinstance(value, list):
            return _decode(value, option)
        if option in (TextPart, ImagePart):
            if set(value) == set(_hints(option)):
                return _decode(value, option)
        elif option is not str and option is not type(None) and get_origin(option) is not tuple:
            return _decode(value, option)
    raise TypeError(f"{value!r} fits none of {arguments}")


def _decode_key(key: str, kind: Any) -> Any:
    return int(key) if kind is int else key


def _array(value: Any) -> np.ndarray[Any, Any]:
    raw = base64.b64decode(value["data"], validate=True)
    array = np.frombuffer(raw, dtype=np.dtype(value["dtype"])).reshape(value["shape"])
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array.setflags(write=False)
    return array


@cache
def _names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass; none of anything else."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


@cache
def _floats(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a dataclass that are declared as a float (or None), or as a table of floats."""
    try:
        hints = _hints(kind)  # type: ignore[arg-type]
    except NameError:  # somebody's dataclass in a payload, whose annotations only a type checker can read
        return ()
    return tuple(name for name, hint in hints.items() if _declares_floats(hint))


def _declares_floats(hint: Any) -> bool:
    origin, arguments = _parts(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return arguments[1] is float
    return hint is float or set(arguments) == {float, types.NoneType}


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """What an annotation such as `tuple[int, ...]` is made of."""
    return get_origin(kind), get_args(kind)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}
