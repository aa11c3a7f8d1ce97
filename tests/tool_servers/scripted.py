"""The Python service without Python."""

import asyncio

from agar.errors import SandboxError
from agar.sandbox.config import SandboxSpec
from agar.sandbox.fake import FakeSandbox
from agar.sandbox.kernel.cell import Cell
from agar.tool_servers.python import Python


class Scripted(Python):
    """Its interpreters run nothing: each cell says what it was, and waits until it may end."""

    def __init__(self, config=None):
        super().__init__(config)
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.cell = None
        self.sandboxes = []
        self.refuse = set()

    def make_sandbox(self):
        number, refuse = len(self.sandboxes), self.refuse

        class Held(FakeSandbox):
            async def close(self):
                await super().close()
                if number in refuse:
                    raise SandboxError(f"sandbox {number} does not go")

        self.sandboxes.append(Held(SandboxSpec(backend="fake")))
        return self.sandboxes[-1]

    def _of(self, session):
        held = super()._of(session)

        async def run(code, *, timeout_s):
            self.began.set()
            await self.go.wait()
            return self.cell or Cell(status="ok", output=code)

        held.kernel.run = run
        return held
