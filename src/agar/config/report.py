"""What a recipe's mistakes are, said in its own terms: key, value, origin, what was expected, the nearest valid key."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agar.config.overrides import show, unknown_key
from agar.config.paths import Field, below, choices, is_model, members, required

_WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text in quotes",
    "path_type": "a path in quotes",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "none_required": "nothing",
}


def explain(
    model: type[BaseModel], data: Mapping[str, Any], error: ValidationError, source: Callable[[str], str]
) -> str:
    """One line for each mistake.

    Args:
        model: the recipe's settings class.
        data: the plain values that were validated.
        error: pydantic's findings.
        source: says where the value of a dotted path came from.
    """
    found: dict[str, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        found.setdefault(".".join(_path(model, data, details["loc"])), []).append(details)
    lines = [_line(model, data, path, group, source(path)) for path, group in found.items()]
    return lines[0] if len(lines) == 1 else "\n".join([f"{len(lines)} settings are wrong:", *(f"  {x}" for x in lines)])


def _path(model: type[BaseModel], data: Mapping[str, Any], location: Sequence[int | str]) -> list[str]:
    """A location without the names of union members that pydantic puts between the keys."""
    field, path = Field(annotation=model), list[str]()
    node: Any = data
    for step in location:
        following = below(field, str(step), node)
        given = _given(node, step)
        if following is None and given is None and (step != location[-1] or _names_a_member(field, step)):
            continue
        path.append(str(step))
        field, node = following or Field(annotation=Any), given
    return path


def _given(node: Any, step: int | str) -> Any:
    """The value at one step of a location, None where there is none."""
    if isinstance(node, Mapping):
        return node.get(step)
    if isinstance(node, list) and isinstance(step, int) and step < len(node):
        return node[step]
    return None


def _names_a_member(field: Field, step: int | str) -> bool:
    """Whether a step of a location is the name of a union member, not a key."""
    kinds = members(field.annotation)
    names = {getattr(kind, "__name__", str(kind)) for kind in kinds}
    tags = {tag for kind in kinds if is_model(kind) and field.tag for tag in choices(kind, field.tag)}
    return len(kinds) > 1 and (step in names | tags or str(step).startswith("constrained-"))


def _line(
    model: type[BaseModel], data: Mapping[str, Any], path: str, group: Sequence[ErrorDetails], source: str
) -> str:
    first = group[0]
    keys = path.split(".") if path else []
    if first["type"] == "extra_forbidden":
        field, node = _walk(model, data, keys[:-1])
        return str(unknown_key(model, keys, first["input"], field, node, source))
    if first["type"] == "missing":
        needed = required(_walk(model, data, keys)[0], path)
        return "; ".join(f"{x} is missing and has no default: set it in the recipe or with --{x} VALUE" for x in needed)
    wanted = " or ".join(dict.fromkeys(_wanted(details) for details in group))
    if not path:
        return wanted
    if first["type"] == "union_tag_invalid":
        tag = first["ctx"]["discriminator"].strip("'")
        return f"{path}.{tag} = {show(first['ctx']['tag'])} ({source}): expected {wanted}"
    if first["type"] == "union_tag_not_found":
        return f"{path} = {show(first['input'])} ({source}): {wanted}"
    if first["type"] == "value_error":
        return f"{path} ({source}): {wanted}"
    return f"{path} = {show(first['input'])} ({source}): expected {wanted}"


def _walk(model: type[BaseModel], data: Mapping[str, Any], path: Sequence[str]) -> tuple[Field, Any]:
    field, node = Field(annotation=model), data
    for key in path:
        field = below(field, key, node) or Field(annotation=Any)
        node = node.get(key, {}) if isinstance(node, Mapping) else {}
    return field, node


def _wanted(details: ErrorDetails) -> str:
    """What would have been right."""
    kind, context = details["type"], details.get("ctx", {})
    if kind in _WANTED:
        return _WANTED[kind]
    if kind in {"literal_error", "enum"}:
        return f"one of {context['expected']}"
    if kind == "union_tag_invalid":
        return f"one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"set {context['discriminator']} to say which kind it is"
    if kind == "value_error":
        return details["msg"].removeprefix("Value error, ")
    text = details["msg"]
    return text.removeprefix("Input should be ") if text.startswith("Input should be ") else text
