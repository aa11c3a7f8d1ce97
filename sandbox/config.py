"""Settings of a sandbox."""

from typing import Literal

from pydantic import Field, field_validator

from agar.config import BaseConfig


class SandboxSpec(BaseConfig):
    """What a sandbox is made of and how much it may use."""

    backend: Literal["bubblewrap", "fake"] = "bubblewrap"
    """What isolates: `bubblewrap` (Linux namespaces, no daemon) or `fake` (scripted, runs nothing; for tests)."""
    network: Literal["none"] = "none"
    """What the sandbox can reach: nothing but its own loopback."""
    cpus: float | None = Field(None, gt=0)
    """Processors' worth of time that all its processes share; None sets no bound beyond the deadline."""
    memory_mib: int = Field(256, ge=16)
    """Memory of all its processes and of the files it has written, in MiB."""
    pids: int = Field(64, ge=8)
    """Processes and threads at one time."""
    disk_mib: int = Field(64, ge=1)
    """Size of everything it may write (`/work`, `/tmp` and `/dev/shm` together), in MiB; held in memory."""
    files: int = Field(10_000, ge=16)
    """Files and directories that it may create."""
    timeout_s: float = Field(10.0, gt=0)
    """Deadline of one `exec` that names none, in seconds; the whole process tree is killed at it."""
    output_bytes: int = Field(1 << 20, ge=1)
    """Bytes kept of stdout, and as many of stderr; a command that writes more is killed."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of every command, added to PATH, HOME and LANG; nothing is inherited from the caller."""

    @field_validator("env")
    @classmethod
    def _names_are_sane(cls, env: dict[str, str]) -> dict[str, str]:
        check_env_names(env)
        return env


def check_env_names(env: dict[str, str]) -> None:
    """Refuse names and values that no process environment can hold.

    Raises:
        ValueError: a name is empty or holds `=`, or a name or value holds a NUL byte.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"environment variable {name!r} needs a name without '=' and no NUL bytes: rename it")
