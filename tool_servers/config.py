"""Settings of serving tools."""

from pydantic import Field

from agar.config import BaseConfig
from agar.serving.address import token_of

TOKEN_VARIABLE = "AGAR_TOOLS_TOKEN"
"""The environment variable that holds the token, unless another one is named."""


class ServerConfig(BaseConfig):
    """Where a tool server listens, who may call it, and how much at a time."""

    host: str = "127.0.0.1"
    """Address to listen on; one that others can reach needs a token."""
    port: int = Field(8500, ge=0, le=65_535)
    """Port; 0 takes a free one."""
    token_variable: str = TOKEN_VARIABLE
    """The environment variable with what callers must send as `Authorization: Bearer`; where it is not set, nothing is
    asked for, which is allowed on loopback only. No setting holds the token itself, for settings are printed."""
    mcp: bool = False
    """Speak MCP too, at `/mcp`."""
    calls_in_flight: int = Field(256, ge=1)
    """Calls, and requests to a service's own routes, that are under way at a time; one beyond is told to come again
    (429), one over MCP waits as long as a call may take."""
    call_timeout_s: float = Field(60.0, gt=0)
    """The longest that a call of a tool without a deadline of its own may take; a caller may ask for less."""
    body_bytes: int = Field(4 * 1024 * 1024, ge=1024)
    """The largest request body."""
    body_timeout_s: float = Field(30.0, gt=0)
    """How long a request's body may take to arrive."""
    head_timeout_s: float = Field(30.0, gt=0)
    """How long the head of a request may take to arrive; a connection without one is closed."""
    shutdown_timeout_s: float = Field(2.0, gt=0)
    """How long open connections may finish when the server closes."""

    def token(self) -> str | None:
        """The token from the environment; None where none is asked for.

        Raises:
            ConfigError: others can reach the address and there is none, or it can be guessed.
        """
        return token_of(self.token_variable, host=self.host, setting="server.host")


class ServiceConfig(BaseConfig):
    """Settings of a service; a subclass adds its own."""

    server: ServerConfig = Field(default_factory=ServerConfig)
    """How it is served, where it is."""
