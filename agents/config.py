"""Settings of the agent that plays."""

from typing import Literal

from pydantic import Field

from agar.config import BaseConfig


class AgentConfig(BaseConfig):
    """Which agent plays, and how it reaches the model."""

    type: Literal["chat"] = "chat"
    """The kind of agent: `chat` answers every observation with one model call."""
    transport: Literal["http", "direct"] = "http"
    """How it calls the model: `http` through the official OpenAI client and the gateway, as foreign agents do;
    `direct` within the process. The ledger is the same."""
    model: str = Field("agar", min_length=1)
    """The model name that is sent over HTTP; the session decides which policy answers, whatever it says."""
    max_turns: int | None = Field(None, ge=1)
    """The agent stops by itself after so many turns; None leaves it to the environment's own limit."""
    timeout_s: float = Field(600.0, gt=0)
    """How long one model call may take over HTTP, a pause for a publish included."""
    max_retries: int = Field(1, ge=0, le=5)
    """How often the client repeats a call that failed with a 5xx or a broken connection. The body is the same, so the
    gateway answers from its ledger if the first one got through: nothing is sampled twice."""
