"""Gymnasium spaces whose members are messages and turns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from agar.types import Finish, ImagePart, Message, Part, TextPart, ToolCall, ToolSpec, Turn

Observation = str | Message | list[Message]
"""What an environment may answer: a text (a user message), one message, or several."""

_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz0123456789 "))


class MessageSpace(Space[Observation]):
    """Observations: a `str`, a `Message` or a list of messages."""

    def __init__(self, *, max_chars: int = 16, seed: int | np.random.Generator | None = None) -> None:
        """Make the space; `max_chars` bounds what `sample` gives, not what the space contains."""
        super().__init__(shape=None, dtype=None, seed=seed)
        self.max_chars = max_chars

    @property
    def is_np_flattenable(self) -> bool:
        """False: messages have no array form."""
        return False

    def contains(self, x: Any) -> bool:
        """True for a text, a message, or a list of messages (an empty list says nothing)."""
        if isinstance(x, list):
            return all(isinstance(item, Message) for item in x)
        return isinstance(x, str | Message)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> list[Message]:
        """One random user message."""
        return [Message(role="user", content=_random_text(self.np_random, self.max_chars))]

    def to_jsonable(self, sample_n: Iterable[Observation]) -> list[Any]:
        """Members as JSON values; a text stays a text, so that `from_jsonable` gives the same member back."""
        return [_observation_to_json(item) for item in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[Observation]:
        """What `to_jsonable` gave, as members."""
        return [_observation_from_json(item) for item in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageSpace)

    def __hash__(self) -> int:
        return hash(MessageSpace)

    def __repr__(self) -> str:
        return "MessageSpace()"


class TurnSpace(Space[Turn]):
    """Actions: a `Turn`, or a `str` that stands for a turn with that text.

    `sample` gives texts and, where there are tools, well-formed calls of them.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec] = (),
        *,
        max_chars: int = 16,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        """Make the space of an agent that may call `tools`; `max_chars` bounds what `sample` gives."""
        super().__init__(shape=None, dtype=None, seed=seed)
        self.tools = tuple(tools)
        self.max_chars = max_chars

    @property
    def is_np_flattenable(self) -> bool:
        """False: turns have no array form."""
        return False

    def contains(self, x: Any) -> bool:
        """True for a turn or a text. Calls of unknown tools are inside: the environment answers them."""
        return isinstance(x, Turn | str)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> Turn:
        """A random text, or a call of a random tool with arguments of the right types."""
        rng = self.np_random
        choice = int(rng.integers(0, len(self.tools) + 1))
        if choice == len(self.tools):
            return Turn(text=_random_text(rng, self.max_chars))
        spec = self.tools[choice]
        arguments = {
            name: _random_value(rng, schema, self.max_chars)
            for name, schema in spec.parameters.get("properties", {}).items()
        }
        return Turn(
            tool_calls=(ToolCall(id=f"call_{int(rng.integers(0, 2**31))}", name=spec.name, arguments=arguments),)
        )

    def to_jsonable(self, sample_n: Iterable[Turn | str]) -> list[Any]:
        """Members as JSON values."""
        return [item if isinstance(item, str) else _turn_to_json(item) for item in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[Any]:
        """What `to_jsonable` gave, as members."""
        return [item if isinstance(item, str) else _turn_from_json(item) for item in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnSpace) and self.tools == other.tools

    def __hash__(self) -> int:
        return hash((TurnSpace, tuple(tool.name for tool in self.tools)))

    def __repr__(self) -> str:
        return f"TurnSpace(tools={[tool.name for tool in self.tools]})"


def _random_text(rng: np.random.Generator, max_chars: int) -> str:
    return "".join(rng.choice(_LETTERS, size=int(rng.integers(1, max_chars + 1))))


def _random_value(rng: np.random.Generator, schema: Mapping[str, Any], max_chars: int) -> Any:
    if "enum" in schema:
        return schema["enum"][int(rng.integers(0, len(schema["enum"])))]
    match schema.get("type"):
        case "integer":
            low = int(schema.get("minimum", 0))
            return int(rng.integers(low, int(schema.get("maximum", low + 99)) + 1))
        case "number":
            return float(rng.random())
        case "boolean":
            return bool(rng.integers(0, 2))
        case "array":
            return [_random_value(rng, schema.get("items", {}), max_chars)]
        case "object":
            fields = schema.get("properties", {})
            return {name: _random_value(rng, field, max_chars) for name, field in fields.items()}
        case "null":
            return None
    return _random_text(rng, max_chars)


def _observation_to_json(observation: Observation) -> Any:
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Message):
        return _message_to_json(observation)
    return [_message_to_json(message) for message in observation]


def _observation_from_json(value: Any) -> Observation:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _message_from_json(value)
    return [_message_from_json(item) for item in value]


def _message_to_json(message: Message) -> dict[str, Any]:
    content = message.content
    return {
        "role": message.role,
        "content": content if isinstance(content, str) else [_part_to_json(part) for part in content],
        "tool_calls": [_call_to_json(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "reasoning": message.reasoning,
    }


def _message_from_json(value: Mapping[str, Any]) -> Message:
    content = value["content"]
    return Message(
        role=value["role"],
        content=content if isinstance(content, str) else tuple(_part_from_json(part) for part in content),
        tool_calls=tuple(_call_from_json(call) for call in value["tool_calls"]),
        tool_call_id=value["tool_call_id"],
        reasoning=value["reasoning"],
    )


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    return {
        "text": turn.text,
        "reasoning": turn.reasoning,
        "tool_calls": [_call_to_json(call) for call in turn.tool_calls],
        "finish": turn.finish.value,
        "parse_error": turn.parse_error,
    }


def _turn_from_json(value: Mapping[str, Any]) -> Turn:
    return Turn(
        text=value["text"],
        reasoning=value["reasoning"],
        tool_calls=tuple(_call_from_json(call) for call in value["tool_calls"]),
        finish=Finish(value["finish"]),
        parse_error=value["parse_error"],
    )


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}


def _call_from_json(value: Mapping[str, Any]) -> ToolCall:
    return ToolCall(id=value["id"], name=value["name"], arguments=value["arguments"])


def _part_to_json(part: Part) -> dict[str, Any]:
    return {"text": part.text} if isinstance(part, TextPart) else {"url": part.url}


def _part_from_json(value: Mapping[str, Any]) -> Part:
    return TextPart(text=value["text"]) if "text" in value else ImagePart(url=value["url"])
