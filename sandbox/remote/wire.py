"""The bodies of a sandbox server's requests and replies. Files, trees and snapshots travel as bytes beside them."""

import base64
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agar.sandbox.base import ExecResult, KilledBy, Transfer

MISSING = 404
"""No such sandbox, or process: it was closed, or nobody used it for too long."""
_ASKABLE = "cpus memory_mib pids disk_mib files timeout_s output_bytes env user network"
ASKABLE = frozenset(_ASKABLE.split())
"""Settings of a sandbox that a caller may ask for; the others are the server's."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SandboxRequest(_Body):
    """`POST /sandboxes`."""

    spec: dict[str, Any] = Field(default_factory=dict)
    """What is to differ from the server's own settings."""


class SandboxMade(_Body):
    """Its answer."""

    id: str
    """What it is called from now on."""


class ForkRequest(_Body):
    """`POST /sandboxes/{id}/fork`."""

    count: int = Field(ge=1, le=1024)
    """How many copies."""


class Forked(_Body):
    """Its answer."""

    ids: list[str]
    """What they are called."""


class CommandRequest(_Body):
    """`POST /sandboxes/{id}/exec` and `/processes`."""

    command: str | list[str]
    """As `Sandbox.exec` takes it."""
    cwd: str | None = None
    """Working directory."""
    env: dict[str, str] = Field(default_factory=dict)
    """More environment variables."""
    stdin: str = ""
    """What it reads, in base64."""
    timeout_s: float | None = None
    """Deadline, in seconds."""

    def given(self) -> bytes:
        """What it reads.

        Raises:
            ValueError: it is no base64.
        """
        return base64.b64decode(self.stdin, validate=True)


class Ran(_Body):
    """What a command did."""

    code: int
    """See `ExecResult`, as for the others."""
    stdout: str
    """Output."""
    stderr: str
    """Errors."""
    truncated: bool
    """Whether either was cut."""
    wall_s: float
    """Seconds."""
    killed_by: KilledBy | None
    """Why it was killed."""

    @classmethod
    def of(cls, result: ExecResult) -> "Ran":
        """For the wire."""
        return cls(
            code=result.code,
            stdout=result.stdout,
            stderr=result.stderr,
            truncated=result.truncated,
            wall_s=result.wall_s,
            killed_by=result.killed_by,
        )

    def result(self) -> ExecResult:
        """From the wire."""
        return ExecResult(**self.model_dump())


class Moved(_Body):
    """What `put` or `get` copied."""

    files: int
    """See `Transfer`, as for the others."""
    size_bytes: int
    """Bytes."""
    skipped: dict[str, int]
    """By reason."""

    @classmethod
    def of(cls, transfer: Transfer) -> "Moved":
        """For the wire."""
        return cls(files=transfer.files, size_bytes=transfer.size_bytes, skipped=dict(transfer.skipped))

    def transfer(self) -> Transfer:
        """From the wire."""
        return Transfer(files=self.files, size_bytes=self.size_bytes, skipped=self.skipped)


class Problem(_Body):
    """Why a request was not carried out."""

    kind: Literal["ToolError", "SandboxError", "ConfigError", "UnsupportedPlatformError"]
    """The error that the caller is to raise."""
    detail: str
    """Its message."""


class Health(_Body):
    """`GET /health`."""

    status: Literal["ok"] = "ok"
    """Always."""
    backend: str
    """What isolates here."""
    sandboxes: int
    """How many there are."""
