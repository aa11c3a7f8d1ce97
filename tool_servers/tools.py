"""Methods that agents may call: their JSON schema from type hints and docstring, and one call of one of them."""

import asyncio
import functools
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo

from agar.errors import ConfigError, ToolError
from agar.tool_servers.background import contained, in_thread
from agar.tool_servers.base import NO_SESSION, Deadline, Session
from agar.tool_servers.text import sendable
from agar.types import ToolSpec

Method = TypeVar("Method", bound=Callable[..., Any])

_MARK = "__agar_tool__"
_OWN_DEADLINE_GRACE_S = 5.0
"""How much longer a call of a method may take that keeps its deadline by itself."""
_PARAMETER = re.compile(r"^(\w+)(?: \([^)]*\))?:\s*(.*)$")
_SECTION = re.compile(r"^[A-Z][A-Za-z ]*:$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool: what the model is told, how its arguments are checked, what runs."""

    spec: ToolSpec
    """Name, description and schema, as the model sees them."""
    method: Callable[..., Any]
    """The undecorated method; it takes the environment first."""
    arguments: type[BaseModel]
    """Checks a call's arguments and converts them to the hinted types."""
    timeout_s: float | None
    """The tool's deadline; None takes the environment's `tool_timeout_s`."""
    session_parameter: str | None = None
    """The parameter that is told the episode; None where the method has none."""
    deadline_parameter: str | None = None
    """The parameter that is told the deadline; None where the method has none."""

    async def call(
        self, owner: object, arguments: Mapping[str, Any], *, timeout_s: float, session: Session = NO_SESSION
    ) -> str:
        """Run the tool once.

        Args:
            owner: the environment or service whose method it is.
            arguments: what the model sent.
            timeout_s: the deadline where the tool has none of its own. A synchronous method that overruns it goes on
                in its thread; its result is dropped.
            session: the episode, for a method that keeps something for it.

        Returns:
            A string as it is, anything else as JSON; `sendable`, and so is the text of a `ToolError`.

        Raises:
            ToolError: the arguments do not fit, the deadline passed, or the method raised it. The agent reads the text.
            Exception: what else the method raised; `RuntimeError` where it cancelled itself or wanted to exit.
        """
        try:
            json.dumps(dict(arguments), ensure_ascii=False, default=str).encode()
            checked = self.arguments.model_validate(dict(arguments))
        except UnicodeEncodeError as error:  # "\ud800" is legal JSON, and no text that a program can be given
            raise ToolError(f"{self.spec.name}: an argument holds half a surrogate pair") from error
        except ValidationError as error:
            raise ToolError(f"{self.spec.name}: {_complaint(error)}") from error
        values = {field.alias or name: getattr(checked, name) for name, field in type(checked).model_fields.items()}
        if self.session_parameter is not None:
            values[self.session_parameter] = session
        limit_s = self.timeout_s if self.timeout_s is not None else timeout_s
        grace_s = 0.0
        if self.deadline_parameter is not None:
            values[self.deadline_parameter] = Deadline(limit_s)
            grace_s = _OWN_DEADLINE_GRACE_S
        try:
            async with asyncio.timeout(limit_s + grace_s) as deadline:
                if inspect.iscoroutinefunction(self.method):
                    result = await contained(self.method(owner, **values))
                else:
                    call = functools.partial(self.method, owner, **values)
                    result = await in_thread(call, name=f"agar-tool-{self.spec.name}")
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise ToolError(f"{self.spec.name}: no result within {limit_s:g} s") from error
        except ToolError as error:
            raise ToolError(sendable(str(error))) from error
        return sendable(result if isinstance(result, str) else json.dumps(result, default=str, ensure_ascii=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    name: str | None
    timeout_s: float | None


@overload
def tool(method: Method, /) -> Method: ...
@overload
def tool(*, name: str | None = None, timeout_s: float | None = None) -> Callable[[Method], Method]: ...
def tool(
    method: Method | None = None, /, *, name: str | None = None, timeout_s: float | None = None
) -> Method | Callable[[Method], Method]:
    """Mark a method of a `ToolEnv` as a tool.

    The schema comes from the type hints (any that pydantic knows: `int`, `Literal`, `list[str]`, models,
    `Annotated[int, Field(ge=0)]`), the description from the docstring's first paragraph, and parameter descriptions
    from its `Args:` section. The method may be `async`; a synchronous one runs in a thread.

    Args:
        method: the method, when used without parentheses.
        name: the name that the model sees; the method's own by default.
        timeout_s: the deadline of one call; the environment's `tool_timeout_s` by default.

    Returns:
        The same method, marked.

    Raises:
        ConfigError: timeout_s is not positive.
    """
    if timeout_s is not None and timeout_s <= 0:
        raise ConfigError(f"a tool's timeout_s must be positive, got {timeout_s}: pass seconds")

    def mark(function: Method) -> Method:
        setattr(function, _MARK, _Mark(name=name, timeout_s=timeout_s))
        return function

    return mark if method is None else mark(method)


def tools_of(cls: type) -> dict[str, Tool]:
    """The tools of a class by name, in the order of definition, those of its bases first.

    A method that writes over a tool is that tool without being marked again; `name = None` takes the tool away.

    Raises:
        ConfigError: a parameter has no type hint or one that has no schema, or two tools share a name.
    """
    marked: dict[str, tuple[Any, _Mark]] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            mark = getattr(value, _MARK, None) or (marked[attribute][1] if attribute in marked else None)
            if mark is not None:
                marked[attribute] = (value, mark)
    found: dict[str, Tool] = {}
    for method, mark in marked.values():
        if method is None:
            continue
        made = _tool_from(method, mark)
        if made.spec.name in found:
            raise ConfigError(f"{cls.__name__} has two tools named {made.spec.name!r}: rename one with @tool(name=...)")
        found[made.spec.name] = made
    return found


def _tool_from(method: Callable[..., Any], mark: _Mark) -> Tool:
    name = mark.name or method.__name__
    description, parameter_texts = _read_docstring(inspect.getdoc(method) or "")
    fields: dict[str, Any] = {}
    given: dict[Any, str | None] = {Session: None, Deadline: None}
    try:
        hints = typing.get_type_hints(method, include_extras=True)
    except NameError as error:
        raise ConfigError(f"a type hint of tool {name!r} cannot be resolved: {error}; import it at run time") from error
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        where = f"parameter {parameter.name!r} of tool {name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"{where} is {parameter.kind.description}: a tool takes named parameters only")
        if parameter.name not in hints:
            raise ConfigError(f"{where} has no type hint: the model's schema is made from it")
        kind = next((kind for kind in given if kind is hints[parameter.name]), None)
        if kind is not None:
            given[kind] = parameter.name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        text = parameter_texts.get(parameter.name)
        info: FieldInfo = Field(default, alias=parameter.name, description=text)
        fields[f"field_{len(fields)}"] = (hints[parameter.name], info)  # any name is legal, "json" and "_x" too
    try:
        arguments: type[BaseModel] = create_model(
            name,
            __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False, protected_namespaces=()),
            **fields,
        )
        schema = _compact(arguments.model_json_schema())
    except (PydanticUserError, NameError, TypeError) as error:
        raise ConfigError(f"the parameters of tool {name!r} have no JSON schema: {error}") from error
    schema = {"type": "object", "properties": {}, **schema}  # in the order in which people write it
    spec = ToolSpec(name=name, description=description, parameters=schema)
    return Tool(
        spec=spec,
        method=method,
        arguments=arguments,
        timeout_s=mark.timeout_s,
        session_parameter=given[Session],
        deadline_parameter=given[Deadline],
    )


def _compact(schema: Any, *, names: bool = False) -> Any:
    """Drop what pydantic adds and a model has no use for: titles and additionalProperties."""
    if isinstance(schema, dict):
        return {
            key: _compact(value, names=key in ("properties", "$defs") and not names)
            for key, value in schema.items()
            if names or key not in ("title", "additionalProperties")
        }
    return [_compact(item) for item in schema] if isinstance(schema, list) else schema


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the texts of a Google-style `Args:` section by parameter."""
    description = " ".join(text.split("\n\n", 1)[0].split())
    parameters: dict[str, str] = {}
    current = ""
    inside = False
    for line in text.splitlines():
        if _SECTION.match(line):
            inside, current = line == "Args:", ""
        elif inside and (match := _PARAMETER.match(line.strip())) and len(line) - len(line.lstrip()) <= 4:
            current = match[1]
            parameters[current] = match[2]
        elif inside and current and line.strip():
            parameters[current] = f"{parameters[current]} {line.strip()}"
    return description, parameters


def _complaint(error: ValidationError) -> str:
    """One short line about what is wrong with the arguments."""
    parts = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(str(step) for step in problem["loc"])
        parts.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    return "; ".join(parts)
