"""What the typed requests of all dialects share.

A request is read in two steps: its envelope with every call, its rows (messages, items, tools) only where the session
has not seen the same JSON before. Fields that a model names are checked; what it does not name is kept by whoever reads
it, so that nothing is ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from agar.rollout.gateway.call import BadRequest

T = TypeVar("T")
StopText = Annotated[str, Field(min_length=1, max_length=256)]
"""A text that ends a reply. An engine looks for it after every token, and decodes as many as it is long to do so."""
NotServed = Annotated[None, Field(description="Not served here: leave it out.")]
"""A field that would change the meaning of the reply and cannot be honoured."""
_SHOWN_CHARACTERS = 80
_SHOWN_REASONS = 3
_PLAIN = frozenset({NoneType, str, bool, int, float, dict})


class Wire(BaseModel):
    """A JSON object of a request; unknown fields are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())


@dataclass(frozen=True)
class Rows:
    """Marks a list that is read row by row, later; the schema of the API shows its rows all the same."""

    row: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Only that it is a list."""
        return core_schema.is_instance_schema(list, cls_repr="list")

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A list of the rows."""
        return {"type": "array", "items": handler(TypeAdapter(self.row).core_schema)}


class Reader(Generic[T]):
    """Reads JSON values of one kind, with refusals that name the field at fault.

    Args:
        kind: a `Wire` model, or a union of several.
    """

    def __init__(self, kind: Any) -> None:
        self._validate = TypeAdapter(kind).validator.validate_python

    def read(self, value: Any, where: str = "") -> T:
        """The value as its model.

        Args:
            value: what JSON gave.
            where: its place in the request.

        Raises:
            BadRequest: it is of another kind.
        """
        try:
            read: T = self._validate(value)
        except ValidationError as error:
            raise _refusal(error, value, where) from None
        return read

    def read_row(self, value: Any, where: str) -> tuple[T, Mapping[str, Any]]:
        """The value as its model, and its unknown fields; the arguments and the refusal are those of `read`."""
        try:
            read: T = self._validate(value, extra="forbid")  # nearly all rows have none, and are not searched for them
        except ValidationError:
            read = self.read(value, where)
            return read, unknown_fields(read) if isinstance(read, Wire) else {}
        return read, {}


def unknown_fields(model: Wire, at: str = "") -> dict[str, Any]:
    """The fields that the model and those inside it do not name, by their place in it."""
    found = {at + name: value for name, value in (model.__pydantic_extra__ or {}).items() if value is not None}
    for name, value in model.__dict__.items():
        if value.__class__ in _PLAIN:  # `isinstance` of a pydantic model is slow, and every message comes through here
            continue
        for place, part in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(part, Wire):
                found |= unknown_fields(part, f"{at}{name}." if place is None else f"{at}{name}[{place}].")
    return found


def _refusal(error: ValidationError, value: Any, where: str) -> BadRequest:
    """What is wrong deepest inside the value: of a union's branches, that is the one that was meant."""
    reasons: dict[str, list[str]] = {}
    for row in error.errors(include_url=False, include_context=True):
        place = _place(value, row["loc"], missing=row["type"] == "missing")
        if row["type"].startswith("union_tag"):
            place = (*place, str(row.get("ctx", {}).get("discriminator", "")).strip("'"))
        said = _said(row["type"], row["msg"], row["input"])
        reasons.setdefault(_spelt(where, place), []).append(said)
    deepest = max(reasons, key=lambda place: place.count(".") + place.count("["))
    told = "; or ".join(dict.fromkeys(reasons[deepest][:_SHOWN_REASONS]))
    return BadRequest(f"{deepest or 'the body'}: {told}", deepest or None)


def _place(value: Any, location: tuple[int | str, ...], *, missing: bool) -> tuple[int | str, ...]:
    """A location without the names of a union's branches, which are no part of the request."""
    place: list[int | str] = []
    for depth, step in enumerate(location):
        inside = isinstance(value, dict) and step in value
        if inside or (isinstance(value, list) and isinstance(step, int) and step < len(value)):
            value = value[step]
            place.append(step)
        elif missing and depth == len(location) - 1:
            place.append(step)
    return tuple(place)


def _spelt(where: str, place: tuple[int | str, ...]) -> str:
    for step in place:
        where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else step
    return where


def _said(kind: str, message: str, value: Any) -> str:
    if kind == "missing":
        return "it is missing"
    if kind == "none_required":
        return "it is not served here: leave it out"
    if isinstance(value, (str, int, float, bool)) or value is None:
        shown = repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str) else value)[: _SHOWN_CHARACTERS + 2]
    else:
        shown = "an object" if isinstance(value, dict) else "a list"
    if kind.startswith("model_"):
        message = "Input should be an object"
    return f"{message[:1].lower()}{message[1:]}, got {shown}"
