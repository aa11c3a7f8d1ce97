"""What an environment in a process of its own may use."""

from pydantic import Field

from agar.config import BaseConfig


class ProcessLimits(BaseConfig):
    """Bounds of an environment that runs with `isolation = "process"`; beyond one, its process is killed."""

    memory_mib: int = Field(2048, ge=128)
    """Private memory of each of its processes, in MiB; importing agar and numpy takes some 60 of them."""
    start_timeout_s: float = Field(60.0, gt=0)
    """How long its process may take to start, import its module and run its constructor."""
    reset_timeout_s: float = Field(60.0, gt=0)
    """How long one reset may take."""
    step_timeout_s: float = Field(60.0, gt=0)
    """How long one step may take, its tools included."""
    reply_mib: int = Field(16, ge=1, le=1024)
    """The largest answer (observation and info as JSON), in MiB; a larger one is not even read."""
