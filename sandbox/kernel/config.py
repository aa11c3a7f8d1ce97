"""Settings of a kernel."""

from pydantic import Field

from agar.config import BaseConfig


class KernelConfig(BaseConfig):
    """A Python interpreter inside a sandbox."""

    python: str = "python3"
    """The interpreter inside, 3.8 or newer; one with packages can be brought in by the sandbox's `mounts`."""
    cell_timeout_s: float = Field(10.0, gt=0)
    """Deadline of a cell that names none, in seconds; it is interrupted at it, and its variables are kept."""
    interrupt_grace_s: float = Field(1.0, gt=0)
    """How long an interrupted cell may take to end; then the interpreter is killed, and its variables are lost."""
    start_timeout_s: float = Field(30.0, gt=0)
    """How long the interpreter may take to start."""
    life_s: float = Field(86_400.0, gt=0)
    """How long the interpreter may live, in seconds; it is killed at it."""
    output_bytes: int = Field(1 << 16, ge=64, le=1 << 22)
    """Bytes of a cell's output that are kept, half of its beginning and half of its end; likewise of the values that it
    shows, and of its traceback."""
