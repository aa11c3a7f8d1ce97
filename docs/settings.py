"""Makes `docs/settings.md`, the reference of every setting, from the settings classes: `python docs/settings.py`.

A setting's sentence is the text below its field; its type, default and bounds are what validation goes by.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from agar.config.overrides import show
from agar.config.paths import is_model, members, unwrap
from agar.envs.isolation.config import ProcessLimits
from agar.recipe.config import Recipe
from agar.recipe.start.policy import PolicyConfig
from agar.sandbox.kernel.config import KernelConfig
from agar.sandbox.remote.config import SandboxServerConfig
from agar.tool_servers.python import PythonConfig
from agar.tool_servers.search.config import SearchConfig

PAGE = Path(__file__).resolve().parent / "settings.md"
ROOTS: tuple[tuple[type[BaseModel], str, str], ...] = (
    (
        Recipe,
        "A recipe",
        "For `agar train`, `sft`, `rollout` and `eval`. `NAME` stands for the name of a policy (`main` where there is "
        "one), `N` for the place of a table in its list, from 0: the first `[[tasks]]` table is `tasks.0`.",
    ),
    (
        SearchConfig,
        "The search server",
        "For `agar tools serve search` and `agar tools mcp search`, in the file that `--config` names or after the "
        "command.",
    ),
    (PythonConfig, "The Python server", "For `agar tools serve python` and `agar tools mcp python`."),
    (SandboxServerConfig, "The sandbox server", "For `agar sandbox serve` and `agar sandbox check`."),
    (
        ProcessLimits,
        "An environment's process",
        "Given from Python, `agar.make(…, limits=ProcessLimits(…))`; a recipe has them as `limits`.",
    ),
    (KernelConfig, "A Python interpreter in a sandbox", "Given from Python, `Kernel(…, KernelConfig(…))`."),
    (PolicyConfig, "A policy made on the spot", "Given from Python, `agar.recipe.start.policy.make(…, config=…)`."),
)
"""Every settings class that is not below another one: the class, the heading, how it is given."""

_WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "anything", type(None): "none"}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "multiple_of": "a multiple of"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting: its name, type, default and bounds as text, what it is for, and the models below it."""

    name: str
    kind: str
    default: str
    bounds: str
    sentence: str
    below: tuple[type[BaseModel], ...] = ()
    step: str = ""
    """What stands between its name and those of the models below it: `.N` for a list, `.NAME` for a table."""


@functools.cache
def sentences(model: type[BaseModel]) -> dict[str, str]:
    """The text below each field of a class, those of its bases included; one that a class leaves out is its base's."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (is_model(base) and base.__module__.startswith("agar")):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            match text:
                case ast.Expr(value=ast.Constant(value=str(sentence))):
                    found[field.target.id] = " ".join(sentence.split())
    return found


def rows(model: type[BaseModel]) -> Iterator[Row]:
    """The settings of one class."""
    texts = sentences(model)
    for name, info in model.model_fields.items():
        below, step = models_of(info.annotation)
        yield Row(
            name=name,
            kind=kind_of(info.annotation),
            default=default_of(info),
            bounds=bounds_of(info),
            sentence=texts.get(name, "Which kind this is." if name == "type" else ""),
            below=below,
            step=step,
        )


def models_of(annotation: Any) -> tuple[tuple[type[BaseModel], ...], str]:
    """The settings classes behind a field, and what of the path stands for the choice among several tables."""
    for member in members(annotation):
        origin, arguments = get_origin(member), get_args(member)
        if origin in (dict, Mapping) and len(arguments) == 2 and any(map(is_model, members(arguments[1]))):
            return models_of(arguments[1])[0], ".NAME"
        if origin in (tuple, list, Sequence) and arguments and any(map(is_model, members(arguments[0]))):
            return models_of(arguments[0])[0], ".N"
    return tuple(member for member in members(annotation) if is_model(member)), ""


def kind_of(annotation: Any) -> str:
    """A type in words."""
    below, step = models_of(annotation)
    if below:
        word = {"": "table", ".N": "list of tables", ".NAME": "tables by name"}[step]
        return f"{word}, or none" if type(None) in members(annotation) else word
    return ", or ".join(dict.fromkeys(map(_word, members(annotation))))


def _word(member: Any) -> str:
    origin, arguments = get_origin(member), get_args(member)
    if origin is Literal:
        return " or ".join(f'`"{value}"`' if isinstance(value, str) else f"`{value}`" for value in arguments)
    if origin in (tuple, list, Sequence):
        many = origin is not tuple or arguments[-1] is Ellipsis
        return f"list of {kind_of(arguments[0])}" if many else f"list of {len(arguments)}: {kind_of(arguments[0])}"
    if origin in (dict, Mapping):
        return f"table of {kind_of(arguments[1])}"
    if member in _WORDS:
        return _WORDS[member]
    return "path" if member is Path else str(unwrap(member).__name__)


def default_of(info: FieldInfo) -> str:
    """The default as it would be written in a recipe."""
    if info.is_required():
        return "**required**"
    value = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        named = {"type": _tag(type(value))} if "type" in type(value).model_fields else {}
        own = named | value.model_dump(mode="json", exclude_defaults=True)
        return f"`{show(own)}`" if own else "those below"
    if isinstance(value, date):
        return "today"
    if value is None:
        return "none"
    if value in ((), {}, ""):
        return "empty"
    return f"`{show(list(value) if isinstance(value, tuple) else value)}`"


def bounds_of(info: FieldInfo) -> str:
    """What a value must keep to."""
    found = []
    for item in info.metadata:
        for name, sign in _SIGNS.items():
            if getattr(item, name, None) is not None:
                found.append(f"{sign} {_number(getattr(item, name))}")
        if getattr(item, "min_length", None):
            found.append("not empty")
        if getattr(item, "pattern", None):
            found.append(f"like `{item.pattern}`")
    return ", ".join(found)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def section(title: str, models: Sequence[type[BaseModel]], prefix: str) -> Iterator[str]:
    """The table of one settings class, or of the kinds that a tagged table has, and those of the tables below it."""
    yield f"{title}\n"
    if len(models) == 1:
        yield f"{_first(models[0])}\n"
    else:
        yield "\n".join(f'- `type = "{_tag(model)}"`: {_first(model)}' for model in models) + "\n"
    yield "| setting | type | default | bounds | what it is |\n|---|---|---|---|---|"
    below: dict[str, Row] = {}
    for row, kinds in merged(models):
        only = f" Of the kind `{'`, `'.join(kinds)}`." if len(kinds) < len(models) else ""
        kind = f"[{row.kind}](#{anchor(f'{prefix}{row.name}{row.step}')})" if row.below else row.kind
        cells = (f"`{prefix}{row.name}`", kind, row.default, row.bounds, f"{row.sentence}{only}")
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |".replace("|  |", "| |")
        if row.below:
            below.setdefault(f"{prefix}{row.name}{row.step}", row)
    yield ""
    for place, row in below.items():
        yield from section(f"### `{place}`", row.below, f"{place}.")


def merged(models: Sequence[type[BaseModel]]) -> list[tuple[Row, list[str]]]:
    """The settings of some kinds of one table, each with the kinds that have it just so, one name after the other."""
    found: dict[str, dict[Row, list[str]]] = {}
    for model in models:
        for row in rows(model):
            if len(models) > 1 and row.name == "type":
                kind = " or ".join(f'`"{_tag(one)}"`' for one in models)
                row = replace(row, kind=kind, default="**required** where the table is written")
            found.setdefault(row.name, {}).setdefault(row, []).append(_tag(model))
    names = sorted(found, key=lambda name: name != "type")  # the kind first
    return [pair for name in names for pair in found[name].items()]


def _tag(model: type[BaseModel]) -> str:
    """What `type` is for this kind; the class's name where it is no kind of anything."""
    info = model.model_fields.get("type")
    return str(get_args(info.annotation)[0]) if info is not None else model.__name__


def _first(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def anchor(heading: str) -> str:
    """The anchor of a heading as Markdown readers make it."""
    return "".join(letter for letter in heading.lower().replace(" ", "-") if letter.isalnum() or letter in "_-")


def reached() -> Iterator[type[BaseModel]]:
    """Every settings class that the page shows."""
    waiting: list[type[BaseModel]] = [model for model, _, _ in ROOTS]
    while waiting:
        model = waiting.pop()
        yield model
        waiting += [below for row in rows(model) for below in row.below]


def page() -> str:
    """The whole page."""
    parts = [
        "# Settings\n",
        "Made by `python docs/settings.py` from the settings classes; a test makes it again and compares.\n",
        "Every setting has a dotted path: its name in a command (`--run.steps 20`) and its place in a TOML file "
        "(`steps = 20` below `[run]`).\n[Configuration](configuration.md) tells how settings are written, overridden "
        "and checked. Units are in names: `_s` is seconds, `_mib` mebibytes.\n",
        "\n".join(f"- [{title}](#{anchor(title)})" for _, title, _ in ROOTS) + "\n",
    ]
    for model, title, text in ROOTS:
        parts += section(f"## {title}\n\n{text}", [model], "")
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
