"""What every backend does with a command before it runs, and with itself as a context."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from agar.errors import ToolError
from agar.sandbox.audit import Audit
from agar.sandbox.base import ExecResult, Process
from agar.sandbox.command import Command
from agar.sandbox.config import SandboxSpec


class Commanded(ABC):
    """The commands of a `Sandbox`: checked, refused where they cannot run at all, audited.

    Attributes:
        spec: what the sandbox is made of.
    """

    def __init__(self, spec: SandboxSpec, *, backend: str) -> None:
        """Nothing starts.

        Args:
            spec: what it is made of.
            backend: what isolates it, for the audit.
        """
        self.spec = spec
        self._audit = Audit(backend)

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """See `Sandbox.exec`."""
        job = Command.of(command, cwd=cwd, env=env, stdin=stdin, timeout_s=timeout_s, spec=self.spec)
        if job.refusal is not None:
            return ExecResult(code=126, stderr=job.refusal)
        return await self._audit.of(job, self._exec(job))

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 3600.0,
    ) -> Process:
        """See `Sandbox.start`."""
        job = Command.of(command, cwd=cwd, env=env, stdin=None, timeout_s=timeout_s, spec=self.spec)
        if job.refusal is not None:
            raise ToolError(job.refusal.strip())
        return await self._start(job)

    @abstractmethod
    async def close(self) -> None:
        """See `Sandbox.close`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def _exec(self, job: Command) -> ExecResult:
        """Run a command to its end."""

    @abstractmethod
    async def _start(self, job: Command) -> Process:
        """Start one. Its line in the audit is for its end."""
