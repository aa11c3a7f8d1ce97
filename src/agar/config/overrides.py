"""Dotted overrides from a command line: `--policies.main.optimizer.lr 1e-6`, `--a.b=1`, `a.b=1`.

The text of a value is read by the type of its field: `8` is a number for an `int` and text for a `str`. Lists and
tables are written as in TOML (`[1, 2]`, `{a = 1}`) or JSON; a list of plain words may also be written `a,b,c`.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from agar.config.paths import Field, below, members, nearest, owners, siblings
from agar.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One override as written: the path, and the value's text (None for a bare flag)."""

    path: tuple[str, ...]
    text: str | None

    @property
    def key(self) -> str:
        """The dotted path."""
        return ".".join(self.path)


def parse(arguments: Sequence[str]) -> list[Override]:
    """Split command-line words into overrides.

    Raises:
        ConfigError: a word is neither `--key value`, `--key=value` nor `key=value`.
    """
    found: list[Override] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        path = tuple(name.split("."))
        flag = word.startswith("--")
        if not all(path) or any(" " in part for part in path) or not (flag or equals):
            raise ConfigError(f"expected `--key value` or `key=value`, got {word!r}: write for instance --run.steps 10")
        if equals:
            found.append(Override(path=path, text=value))
        elif words and not words[0].startswith("--"):
            found.append(Override(path=path, text=words.pop(0)))
        else:
            found.append(Override(path=path, text=None))
    return found


def apply(model: type[BaseModel], data: dict[str, Any], override: Override) -> None:
    """Write one override into the plain data of a recipe.

    Args:
        model: the recipe's settings class.
        data: nested plain values; changed in place.
        override: what to write.

    Raises:
        ConfigError: there is no such key.
    """
    field = Field(annotation=model)
    node: Any = data
    for depth, key in enumerate(override.path):
        following = below(field, key, node)
        if following is None:
            raise unknown_key(model, override.path[: depth + 1], override.text, field, node, f"--{override.key}")
        field = following
        place = _place(node, key, override)
        if depth == len(override.path) - 1:
            node[place] = read(override.text, field)
            return
        child = node.get(place) if isinstance(node, dict) else node[place]
        if not isinstance(child, dict | list):
            child = {}
            node[place] = child
        if isinstance(child, dict) and field.tag is not None and isinstance(field.default, BaseModel):
            # Part of a tagged table is overridden and the tag is left to the default: write it down, since the
            # override makes the table the reader's own.
            child.setdefault(field.tag, getattr(field.default, field.tag))
        node = child


def _place(node: Any, key: str, override: Override) -> str | int:
    """Where `key` is in a table or a list: `--evaluate.0.tasks 64` changes the first entry."""
    if not isinstance(node, list):
        return key
    if not key.isdigit() or int(key) >= len(node):
        raise ConfigError(
            f"--{override.key}: the recipe's list has {len(node)} entries, counted from 0, and none is {key!r}: "
            "change an entry that is there, or add one to the recipe"
        )
    return int(key)


def unknown_key(
    model: type[BaseModel], path: Sequence[str], value: object, field: Field, node: object, source: str
) -> ConfigError:
    """The error for a key that does not exist.

    Args:
        model: the recipe's settings class.
        path: the unknown path.
        value: what it was set to.
        field: the field that the unknown key stands under.
        node: the values so far at that field.
        source: where the value came from.
    """
    keys, place = siblings(field, node), ".".join(path[:-1]) or "the recipe"
    others = owners(field, path[-1])
    near = nearest(model, path, keys)
    if others:
        hint = f"it belongs to {place} with {' or '.join(others)}."
    else:
        hint = f"did you mean {near}?" if near else "no key is spelt like it."
    valid = f" Keys of {place}: {', '.join(sorted(keys))}." if keys else f" {place} is a single value, not a table."
    return ConfigError(f"{'.'.join(path)} = {show(value)} ({source}): unknown key; {hint}{valid}")


def read(text: str | None, field: Field) -> Any:
    """Read a value's text by the type of its field.

    Text that fits no reading is returned as it is, so that validation of the whole recipe says what was expected.

    Args:
        text: as written; None (a bare flag) reads as true.
        field: where it goes.
    """
    if text is None:
        return True
    adapter: TypeAdapter[Any] = TypeAdapter(field.annotation)
    candidates = list(_candidates(text, field))
    for strict in (True, False):
        for value in candidates:
            if not strict and isinstance(value, bool) and bool not in members(field.annotation):
                continue  # a lax reading would take true for 1
            try:
                valid = adapter.validate_json(json.dumps(value), strict=strict)
            except (ValidationError, TypeError):
                continue
            return value if strict else adapter.dump_python(valid, mode="json")
    return candidates[0]


def _candidates(text: str, field: Field) -> Iterator[Any]:
    """The readings of a text, the likeliest first."""
    if text.strip().lower() in {"none", "null"} and type(None) in members(field.annotation):
        yield None
    for parser in (_toml, json.loads):
        try:
            value = parser(text)
        except ValueError:
            continue
        if not (isinstance(value, str) and str in members(field.annotation)):  # quotes belong to a text as written
            yield value
    if "," in text and any(get_origin(member) in (list, tuple, Sequence) for member in members(field.annotation)):
        yield [read(part.strip(), Field(annotation=Any)) for part in text.split(",")]
    yield text


def _toml(text: str) -> Any:
    if "\n" in text:
        raise ValueError("a value is one line")
    value = tomllib.loads(f"value = {text}")
    if set(value) != {"value"}:
        raise ValueError("a value is one value")
    return value["value"]


def show(value: object) -> str:
    """A value as it would be written in a recipe, cut to a readable length."""
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key} = {show(item)}" for key, item in value.items()) + "}"
    else:
        text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
