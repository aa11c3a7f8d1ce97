"""Settings of serving sandboxes."""

from pydantic import Field

from agar.config import BaseConfig
from agar.sandbox.config import SandboxSpec
from agar.serving.address import token_of

TOKEN_VARIABLE = "AGAR_SANDBOX_TOKEN"
"""The environment variable that holds the token, unless another one is named."""


class SandboxServerConfig(BaseConfig):
    """Where sandboxes are served, for whom, and what they may be at most."""

    host: str = "127.0.0.1"
    """Address to listen on; one that others can reach needs a token."""
    port: int = Field(8600, ge=0, le=65_535)
    """Port; 0 takes a free one."""
    token_variable: str = TOKEN_VARIABLE
    """The environment variable with what callers must send as `Authorization: Bearer`; where it is not set, nothing is
    asked for, which is allowed on loopback only. No setting holds the token itself, for settings are printed."""
    spec: SandboxSpec = Field(default_factory=SandboxSpec)
    """What sandboxes are made of. A caller may ask for less of everything, never for more, and for nothing that names
    files of this machine."""
    sandboxes: int = Field(32, ge=1)
    """Sandboxes at one time; a caller beyond is told to come again (429)."""
    process_timeout_s: float = Field(86_400.0, gt=0)
    """How long a command that a caller talks to may live, in seconds; one that is asked for longer is refused."""
    idle_s: float = Field(900.0, gt=0)
    """A sandbox that nobody has used for so long is deleted, in seconds: its user may have died."""
    body_bytes: int = Field(256 * 1024 * 1024, ge=1024)
    """The largest request body."""
    body_timeout_s: float = Field(120.0, gt=0)
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
        return token_of(self.token_variable, host=self.host, setting="host")
