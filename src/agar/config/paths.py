"""Which settings exist below a settings class, by dotted path.

Walks type annotations only: models, optional models, unions told apart by a tag, tables of models, free tables.
"""

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Node = Mapping[str, Any]
"""The values given so far below a point; used to see which member of a tagged union is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key of a settings class.

    Attributes:
        annotation: its type.
        tag: the key that tells the members of its union apart, where it has one.
        default: its default value, None where it is required.
    """

    annotation: Any
    tag: str | None = None
    default: Any = None


def unwrap(annotation: Any) -> Any:
    """The type below `Annotated`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def tag_of(annotation: Any) -> str | None:
    """The discriminator written into an annotation, as in `Annotated[A | B, Field(discriminator="type")]`."""
    while get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        for item in metadata:
            if isinstance(item, FieldInfo) and isinstance(item.discriminator, str):
                return item.discriminator
    return None


def members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, flattened; a plain type is its own only member."""
    plain = unwrap(annotation)
    if get_origin(plain) in (Union, types.UnionType):
        return tuple(inner for member in get_args(plain) for inner in members(member))
    return (plain,)


def is_model(annotation: Any) -> bool:
    """Whether the type is a settings class."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def fields(model: type[BaseModel]) -> dict[str, Field]:
    """The keys of a settings class, by name."""
    return {
        name: Field(
            annotation=info.annotation,
            tag=info.discriminator if isinstance(info.discriminator, str) else tag_of(info.annotation),
            default=None if info.is_required() else info.get_default(call_default_factory=True, validated_data={}),
        )
        for name, info in model.model_fields.items()
    }


def choices(model: type[BaseModel], tag: str) -> tuple[Any, ...]:
    """The values of `tag` that select `model` within a tagged union."""
    info = model.model_fields.get(tag)
    return get_args(unwrap(info.annotation)) if info is not None else ()


def model_below(field: Field, node: Any) -> type[BaseModel] | None:
    """The settings class behind a field, given the values so far; None for a leaf or a free table."""
    models = [member for member in members(field.annotation) if is_model(member)]
    if field.tag is not None:
        tag = node.get(field.tag) if isinstance(node, Mapping) else None
        if tag is None and isinstance(field.default, BaseModel):
            return type(field.default)
        models = [model for model in models if tag in choices(model, field.tag)] or models
    return models[0] if models else None


def table_value(annotation: Any) -> Any | None:
    """The value type of a `dict[str, V]` field; None for anything else."""
    for member in members(annotation):
        if get_origin(member) in (dict, Mapping) or member is dict:
            arguments = get_args(member)
            return arguments[1] if len(arguments) == 2 else Any
    return None


def below(field: Field, key: str, node: Any) -> Field | None:
    """The field `key` under `field`, or None where there is no such key."""
    model = model_below(field, node)
    if model is not None:
        return fields(model).get(key)
    value = table_value(field.annotation)
    if value is not None:
        return Field(annotation=value, tag=tag_of(value))
    for member in members(field.annotation):
        if get_origin(member) in (list, tuple, Sequence) and key.isdigit() and get_args(member):
            element = get_args(member)[0]
            return Field(annotation=element, tag=tag_of(element))
    return Field(annotation=Any) if is_free(field.annotation) else None


def is_free(annotation: Any) -> bool:
    """Whether anything may stand here, as in a table of arguments that are passed on."""
    return any(member in (Any, object) for member in members(annotation))


def siblings(field: Field, node: Any) -> list[str]:
    """The keys that may stand under a field; empty where any key may."""
    model = model_below(field, node)
    return list(fields(model)) if model is not None else []


def all_paths(model: type[BaseModel], prefix: str = "", depth: int = 8) -> Iterator[str]:
    """Every dotted path below a settings class, tables of models left out."""
    if depth == 0:
        return
    for name, field in fields(model).items():
        path = f"{prefix}{name}"
        yield path
        for member in members(field.annotation):
            if is_model(member):
                yield from all_paths(member, f"{path}.", depth - 1)


def nearest(model: type[BaseModel], path: Sequence[str], keys: Sequence[str]) -> str | None:
    """The valid path that was probably meant.

    A key of the same table that is spelt alike comes first; then a key of any table with the same last name, or one
    spelt alike.

    Args:
        model: the whole recipe's settings class.
        path: the unknown path; its last entry is the unknown key.
        keys: the valid keys of the same table.
    """
    *parents, key = path
    dotted = ".".join(path)
    close = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    if close:
        return ".".join([*parents, close[0]])
    everywhere = [known for known in dict.fromkeys(all_paths(model)) if known != dotted]
    same_name = [known for known in everywhere if known.rsplit(".", 1)[-1] == key]
    if same_name:
        return same_name[0]
    by_name = {known.rsplit(".", 1)[-1]: known for known in reversed(everywhere)}
    close = difflib.get_close_matches(key, list(by_name), n=1, cutoff=0.75)
    if close:
        return by_name[close[0]]
    return next(iter(difflib.get_close_matches(dotted, everywhere, n=1, cutoff=0.6)), None)


def owners(field: Field, key: str) -> list[str]:
    """The members of a tagged union that have a key which the selected member lacks, as `type = "rloo"`."""
    if field.tag is None:
        return []
    models = [member for member in members(field.annotation) if is_model(member) and key in fields(member)]
    return [f'{field.tag} = "{choice}"' for model in models for choice in choices(model, field.tag)]


def required(field: Field, path: str) -> list[str]:
    """The paths that must be set where a whole table is missing; the path itself for a single value."""
    models = [member for member in members(field.annotation) if is_model(member)]
    if len(models) != 1:
        return [path]
    infos = models[0].model_fields
    inner = [
        leaf
        for name, below_field in fields(models[0]).items()
        if infos[name].is_required()
        for leaf in required(below_field, f"{path}.{name}")
    ]
    return inner or [path]
