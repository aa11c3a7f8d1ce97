"""The bodies of a tool server's requests and replies."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ToolDescription(BaseModel):
    """A tool, as a model is told of it."""

    name: str
    description: str = ""
    parameters: dict[str, Any]
    """The JSON schema of its arguments."""


class ToolList(BaseModel):
    """The answer of `GET /tools`."""

    tools: list[ToolDescription]
    instance: str = ""
    """The server's, since it was started; calls of the episode send it."""


class CallRequest(BaseModel):
    """One call of a tool."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=256)
    """The tool."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What the model sent."""
    session: str = Field("", max_length=256)
    """The episode. What a tool keeps is kept under it until `DELETE /sessions/{session}`; empty keeps nothing."""
    timeout_s: float | None = Field(None, gt=0)
    """Deadline in seconds; the server's own where it is shorter."""
    instance: str = Field("", max_length=256)
    """The server that the episode began with. Another one refuses a tool that keeps something for the episode: it has
    nothing of it. Empty takes any."""


class CallReply(BaseModel):
    """What a tool says."""

    text: str
    """For the agent."""
    is_error: bool = False
    """Whether the call could not be carried out as asked."""


class Health(BaseModel):
    """The answer of `GET /health`."""

    status: str = "ok"
    service: str


class Problem(BaseModel):
    """Why a request failed; never the agent's fault."""

    detail: str
