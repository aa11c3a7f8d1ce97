"""The request of OpenAI's chat completions, field by field."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agar.rollout.gateway.wire import NotServed, Rows, StopText, Wire


class ChatText(Wire):
    """Text."""

    type: Literal["text"]
    text: str


class ChatRefusal(Wire):
    """A refusal; told as text."""

    type: Literal["refusal"]
    refusal: str


class ImageAddress(Wire):
    """Where an image is."""

    url: str


class ChatImage(Wire):
    """An image; families of text refuse it."""

    type: Literal["image_url"]
    image_url: ImageAddress


ChatContent = str | list[Annotated[ChatText | ChatRefusal | ChatImage, Field(discriminator="type")]] | None
"""What a message says: text, or parts."""


class CalledFunction(Wire):
    """A tool and its arguments."""

    name: str
    arguments: str | dict[str, Any] | None = None
    """JSON text of an object; an object is taken, too."""


class ChatCall(Wire):
    """A tool call of an earlier reply."""

    type: Literal["function"] | None = None
    id: str | int | None = None
    index: int | None = None
    function: CalledFunction


class ToldMessage(Wire):
    """What the system, the developer or the user says."""

    role: Literal["system", "developer", "user"]
    content: ChatContent = None


class AssistantMessage(Wire):
    """An earlier reply."""

    role: Literal["assistant"]
    content: ChatContent = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same under another name."""
    tool_calls: list[ChatCall] | None = None
    refusal: str | None = None
    """Told as text where there is no content."""
    annotations: list[Any] | None = None
    parse_error: str | None = None


class ToolMessage(Wire):
    """The result of a tool call."""

    role: Literal["tool"]
    content: ChatContent = None
    tool_call_id: str


ChatRow = Annotated[ToldMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]
"""One message."""


class ChatFunction(Wire):
    """A function that the model is told of."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatTool(Wire):
    """A tool."""

    type: Literal["function"]
    function: ChatFunction


class NamedFunction(Wire):
    """A function by its name."""

    name: str


class NamedChoice(Wire):
    """The one tool that is to be called."""

    type: Literal["function"]
    function: NamedFunction


class AllowedChoice(Wire):
    """Tools of which one may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: Any


class TextFormat(Wire):
    """Text in any form."""

    type: Literal["text"]


class JsonFormat(Wire):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(Wire):
    """A JSON schema."""

    name: str | None = None
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")


class SchemaFormat(Wire):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[TextFormat | JsonFormat | SchemaFormat, Field(discriminator="type")]
"""The form of the reply."""


class StreamOptions(Wire):
    """How a stream ends."""

    include_usage: bool | None = None


class ChatRequest(Wire):
    """A request for replies to a conversation.

    Sampling is pinned by the session: `temperature` and its like have no effect and are kept in the record, as are
    fields that are not named here.
    """

    messages: Annotated[list[Any], Rows(ChatRow)]
    model: str | None = None
    """Echoed; kept in the record where it is not the session's policy."""
    tools: Annotated[list[Any], Rows(ChatTool)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedChoice | AllowedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    n: int | None = Field(default=None, ge=1, le=128)
    stop: StopText | Annotated[list[StopText], Field(max_length=32)] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=0)
    """Only the sampled tokens are recorded, not what else might have been."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    reasoning_effort: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    user: str | None = None

    modalities: list[Literal["text"]] | None = None
    audio: NotServed = None
    functions: NotServed = None
    function_call: NotServed = None
