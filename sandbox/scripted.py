"""A sandbox whose files can only be reached by running commands in it."""

from abc import abstractmethod
from pathlib import Path

from agar.sandbox.base import ExecResult, Snapshot, Transfer
from agar.sandbox.command import Command
from agar.sandbox.commanded import Commanded
from agar.sandbox.config import SandboxSpec
from agar.sandbox.scripts import Ran, ScriptedFiles


class ScriptedSandbox(Commanded):
    """The methods of a `Sandbox` that come down to running something in it and looking at its bytes."""

    def __init__(self, spec: SandboxSpec, *, backend: str) -> None:
        """See `Commanded`."""
        super().__init__(spec, backend=backend)
        self._files = ScriptedFiles(self._script, disk_mib=spec.disk_mib)

    async def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        return await self._files.read(path)

    async def write(self, path: str, data: bytes | str) -> None:
        """See `Sandbox.write`."""
        await self._files.write(path, data)

    async def put(self, source: Path, target: str) -> Transfer:
        """See `Sandbox.put`."""
        return await self._files.put(source, target)

    async def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        return await self._files.get(source, target)

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        return await self._files.snapshot()

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._files.restore(snapshot)

    async def _exec(self, job: Command) -> ExecResult:
        ran = await self._run(job)
        return ExecResult(
            code=ran.code,
            stdout=ran.out.decode("utf-8", "replace"),
            stderr=ran.err.decode("utf-8", "replace"),
            truncated=ran.truncated,
            wall_s=ran.wall_s,
            killed_by=ran.killed_by,
        )

    @abstractmethod
    async def _run(self, job: Command) -> Ran:
        """Run a command to its end."""

    @abstractmethod
    async def _script(self, script: str, place: str, stdin: bytes) -> Ran:
        """Run one of our own file scripts."""
