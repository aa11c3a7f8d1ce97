"""Settings of the gateway."""

from pydantic import Field

from agar.config import BaseConfig


class GatewayConfig(BaseConfig):
    """Where the gateway listens and how long it waits."""

    host: str = "127.0.0.1"
    """Address to listen on; loopback, because a session key is the only credential."""

    port: int = Field(0, ge=0, le=65_535)
    """Port; 0 takes a free one."""

    call_timeout_s: float = Field(600.0, gt=0)
    """The longest wait for one reply of an engine."""

    head_timeout_s: float = Field(60.0, gt=0)
    """How long the head of a request may take to arrive; a connection without one is closed."""

    ping_s: float = Field(10.0, gt=0)
    """How long a stream that has nothing to send is silent; a failure before its first byte is an ordinary error."""

    write_timeout_s: float = Field(60.0, gt=0)
    """How long a client may leave its reply unread once the buffers are full; its call then ends as if it had left."""

    shutdown_timeout_s: float = Field(2.0, gt=0)
    """How long open connections may finish when the gateway closes."""

    calls_in_flight: int = Field(4096, ge=1)
    """Generations under way at a time, of all sessions; a call beyond is told to come again (429)."""

    session_calls_in_flight: int = Field(64, ge=1)
    """The same for one session; also the most replies that one call may ask for (`n`)."""

    body_bytes: int = Field(32 * 1024 * 1024, ge=1024)
    """The largest request body."""

    body_timeout_s: float = Field(60.0, gt=0)
    """How long a request's body may take to arrive."""

    context_tokens: int | None = Field(default=None, ge=1)
    """The engines' context length; a prompt and reply that would pass it end with a `length` stop. None: unlimited. A
    recipe takes the engines' or the models' where none is set, and keeps six tokens clear, which SGLang refuses."""
