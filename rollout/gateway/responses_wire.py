"""The request of OpenAI's Responses, field by field."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agar.rollout.gateway.wire import NotServed, Rows, Wire


class SaidText(Wire):
    """Text, under the names that it has in its several places."""

    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class SaidRefusal(Wire):
    """A refusal; told as text."""

    type: Literal["refusal"]
    refusal: str


class SaidImage(Wire):
    """An image; families of text refuse it."""

    type: Literal["input_image"]
    image_url: str
    detail: str | None = None


SaidPart = Annotated[SaidText | SaidRefusal | SaidImage, Field(discriminator="type")]
SaidContent = str | list[SaidPart] | None
"""What an item says: text, or parts."""


class MessageItem(Wire):
    """A message."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: SaidContent = None
    id: str | None = None
    status: str | None = None


class ReasoningItem(Wire):
    """The reasoning of an earlier reply."""

    type: Literal["reasoning"]
    summary: list[SaidPart] | None = None
    content: SaidContent = None
    encrypted_content: str | None = None
    id: str | None = None
    status: str | None = None


class FunctionCallItem(Wire):
    """A tool call of an earlier reply."""

    type: Literal["function_call"]
    call_id: str | None = None
    name: str
    arguments: str | dict[str, Any] | None = None
    id: str | None = None
    status: str | None = None


class FunctionResultItem(Wire):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: SaidContent = None
    id: str | None = None
    status: str | None = None


class ReferenceItem(Wire):
    """An item of an earlier response of this session, by its id."""

    type: Literal["item_reference"]
    id: str


Item = MessageItem | ReasoningItem | FunctionCallItem | FunctionResultItem | ReferenceItem
"""One item of a conversation."""


class ResponsesTool(Wire):
    """A tool that is a function; others are kept in the record and not offered."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class OtherTool(Wire):
    """A tool that is no function."""

    type: str


class ToolWish(Wire):
    """The tool that is to be called, or several of which one may."""

    type: str
    name: str | None = None


class TextForm(Wire):
    """Text in any form."""

    type: Literal["text"]


class JsonForm(Wire):
    """Any JSON object."""

    type: Literal["json_object"]


class SchemaForm(Wire):
    """JSON of a schema."""

    type: Literal["json_schema"]
    name: str | None = None
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")


class TextWish(Wire):
    """What the text of the reply is to be like."""

    format: Annotated[TextForm | JsonForm | SchemaForm, Field(discriminator="type")] | None = None


class ResponsesRequest(Wire):
    """A request for a reply to a conversation.

    Sampling is pinned by the session: `temperature` and its like have no effect and are kept in the record, as are
    fields that are not named here.
    """

    input: str | Annotated[list[Any], Rows(Item)]
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    """A response of this session: its conversation goes on, without its instructions."""
    store: bool | None = None
    """Whether the response can be gone on from by its id; it can where nothing is said."""
    tools: Annotated[list[Any], Rows(ResponsesTool | OtherTool)] | None = None
    tool_choice: Literal["auto", "none", "required"] | ToolWish | None = None
    parallel_tool_calls: bool | None = None
    text: TextWish | None = None
    stream: bool | None = None

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    include: list[str] | None = None
    reasoning: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    truncation: str | None = None
    user: str | None = None

    background: Literal[False] | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=0)
    conversation: NotServed = None
    prompt: NotServed = None
