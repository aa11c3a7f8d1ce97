"""A sandbox in memory that knows one command, `cat`, for tests that are not about isolation."""

from pathlib import Path

import pytest

from agar.errors import SandboxError
from agar.sandbox.base import ExecResult


class MemorySandbox:
    """Files in a dict; `cat NAME...` reads them; anything else is an unknown command."""

    made = 0

    def __init__(self, *, fails: str | None = None):
        type(self).made += 1
        self.files: dict[str, bytes] = {}
        self.fails = fails  # "start" or "exec"
        self.closed = False
        self.commands: list[str] = []

    async def exec(self, command, *, cwd=None, env=None, stdin=None, timeout_s=None):
        if self.fails == "exec":
            raise SandboxError("the sandbox died: nothing to do, this is a test")
        self.commands.append(command)
        name, *paths = command.split()
        if name != "cat":
            return ExecResult(code=127, stderr=f"sh: {name}: not found")
        found = [self.files[path] for path in paths if path in self.files]
        return ExecResult(code=0 if len(found) == len(paths) else 1, stdout=b"".join(found).decode())

    async def read(self, path):
        return self.files[path]

    async def write(self, path, data):
        self.files[path] = data.encode() if isinstance(data, str) else data

    async def put(self, source: Path, target: str):
        raise NotImplementedError

    async def get(self, source: str, target: Path):
        raise NotImplementedError

    async def close(self):
        self.closed = True

    async def __aenter__(self):
        if self.fails == "start":
            raise SandboxError("the sandbox did not start: nothing to do, this is a test")
        return self

    async def __aexit__(self, kind, error, trace):
        await self.close()


@pytest.fixture
def memory_sandbox():
    return MemorySandbox
