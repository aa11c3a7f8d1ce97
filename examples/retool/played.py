"""A kernel that is played, for demonstrations: integer arithmetic in this process, in the kernel's own frames.

Thousands of transcripts need no sandbox where all that is ever run is `a = 47 * 6`. A test holds what it says against
the real one.
"""

import ast
import asyncio
import json
from collections.abc import Mapping
from typing import Any

from agar.errors import EnvError
from agar.sandbox.base import ExecResult, Process
from agar.sandbox.command import Command
from agar.sandbox.fake import FakeSandbox

_ALLOWED = (
    *(ast.Module, ast.Assign, ast.Expr, ast.Name, ast.Load, ast.Store, ast.Constant),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.UnaryOp, ast.USub),
)


class PlayedSandbox(FakeSandbox):
    """A sandbox in which nothing but a played kernel can be started."""

    async def _start(self, job: Command) -> Process:
        return PlayedKernel()


class PlayedKernel:
    """A `Process` that answers a kernel's requests."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._said.put_nowait(_frame({"ready": [3]}))

    async def write(self, data: bytes) -> None:
        """Run a cell."""
        request = json.loads(data[4:])
        shown: list[dict[str, str]] = []
        error = None
        try:
            shown = self._run(request["code"])
        except NameError as raised:
            error = f'Traceback (most recent call last):\n  File "<cell {request["cell"]}>"\nNameError: {raised}\n'
        reply = {"cell": request["cell"], "status": "error" if error else "ok", "lost": False, "output": "", "cut": 0}
        self._said.put_nowait(_frame({**reply, "shown": shown, "error": error}))

    async def read(self) -> bytes:
        """What it says next."""
        return await self._said.get()

    async def close(self) -> ExecResult:
        """End it."""
        self._said.put_nowait(b"")
        return ExecResult(code=137)

    def _run(self, code: str) -> list[dict[str, str]]:
        tree = ast.parse(code)
        if strange := [node for node in ast.walk(tree) if not isinstance(node, _ALLOWED)]:
            raise EnvError(
                f"a played kernel does integer arithmetic only, and {code!r} has a {strange[0]}: use a real one"
            )
        shown = []
        for statement in tree.body:
            alone = ast.Expression(statement.value)  # type: ignore[attr-defined]  # both kinds have one
            value = eval(compile(alone, "<cell>", "eval"), {"__builtins__": {}}, self._names)
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._names[target.id] = value  # type: ignore[attr-defined]  # nothing else is allowed
            elif statement is tree.body[-1]:
                shown.append({"text/plain": repr(value)})
        return shown


def _frame(message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body
