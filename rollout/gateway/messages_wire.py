"""The request of Anthropic's Messages, field by field."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agar.rollout.gateway.wire import NotServed, Rows, StopText, Wire


class TextBlock(Wire):
    """Text."""

    type: Literal["text"]
    text: str
    cache_control: Any = None
    citations: Any = None


class Source(Wire):
    """Where an image or a document is, or what it holds."""

    type: str
    data: str | None = None
    url: str | None = None
    media_type: str | None = None


class ImageBlock(Wire):
    """An image; families of text refuse it."""

    type: Literal["image"]
    source: Source
    cache_control: Any = None


class DocumentBlock(Wire):
    """A document; only plain text can be told to the model."""

    type: Literal["document"]
    source: Source
    cache_control: Any = None
    citations: Any = None


class ToolReferenceBlock(Wire):
    """The name of a tool that a search found."""

    type: Literal["tool_reference"]
    tool_name: str
    cache_control: Any = None


ToldBlock = Annotated[TextBlock | ImageBlock | DocumentBlock | ToolReferenceBlock, Field(discriminator="type")]
ToldContent = str | list[ToldBlock] | None
"""What can be told to the model anywhere."""


class ToolUseBlock(Wire):
    """A tool call of an earlier reply."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] | None = None
    cache_control: Any = None
    caller: Any = None


class ThinkingBlock(Wire):
    """The reasoning of an earlier reply; whether it is ours, the ledger knows by its text."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class HiddenThinkingBlock(Wire):
    """Reasoning that nobody here can read; left out."""

    type: Literal["redacted_thinking"]
    data: str | None = None


class ToolResultBlock(Wire):
    """The result of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: ToldContent = None
    is_error: bool | None = None
    cache_control: Any = None


class UserRow(Wire):
    """What the user and the tools say."""

    role: Literal["user"]
    content: (
        str
        | list[
            Annotated[
                TextBlock | ImageBlock | DocumentBlock | ToolReferenceBlock | ToolResultBlock,
                Field(discriminator="type"),
            ]
        ]
    )


class AssistantRow(Wire):
    """An earlier reply."""

    role: Literal["assistant"]
    content: (
        str
        | list[
            Annotated[
                TextBlock
                | ImageBlock
                | DocumentBlock
                | ToolReferenceBlock
                | ToolUseBlock
                | ThinkingBlock
                | HiddenThinkingBlock,
                Field(discriminator="type"),
            ]
        ]
    )


class SystemRow(Wire):
    """What the system says, anywhere in the conversation."""

    role: Literal["system"]
    content: ToldContent = None


MessagesRow = Annotated[UserRow | AssistantRow | SystemRow, Field(discriminator="role")]
"""One message."""


class MessagesTool(Wire):
    """A tool that the caller runs."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    cache_control: Any = None


class ServerTool(Wire):
    """A tool that Anthropic itself would run; kept in the record and not offered."""

    type: str
    name: str | None = None


class MessagesToolChoice(Wire):
    """Which tools may or must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(Wire):
    """JSON of a schema."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")


class OutputConfig(Wire):
    """What the reply is to be like."""

    format: OutputFormat | None = None


class Thread(Wire):
    """A conversation that the gateway holds: its begin, or the message that it goes on from."""

    type: Literal["create", "continue"]
    previous_message_id: str | None = None


class CountRequest(Wire):
    """A conversation whose length is asked for."""

    messages: Annotated[list[Any], Rows(MessagesRow)]
    model: str | None = None
    system: ToldContent = None
    tools: Annotated[list[Any], Rows(MessagesTool | ServerTool)] | None = None
    tool_choice: MessagesToolChoice | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    thread: Thread | None = None
    mcp_servers: Annotated[list[Any], Field(max_length=0)] | None = None


class MessagesRequest(CountRequest):
    """A request for a reply to a conversation.

    Sampling is pinned by the session: `max_tokens`, `temperature` and their like have no effect and are kept in the
    record, as are fields that are not named here.
    """

    max_tokens: int | None = None
    stop_sequences: Annotated[list[StopText], Field(max_length=32)] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    container: NotServed = None
