"""A small service, and it served."""

import asyncio

import pytest

from agar.errors import SandboxError, ToolError
from agar.tool_servers.base import Session
from agar.tool_servers.config import ServerConfig, ServiceConfig
from agar.tool_servers.server import ToolServer
from agar.tool_servers.service import Service
from agar.tool_servers.tools import tool


class Counting(Service[ServiceConfig]):
    """Counts by episode, and fails in every way."""

    settings = ServiceConfig

    def __init__(self, config: ServiceConfig) -> None:
        super().__init__(config)
        self.counts: dict[str, int] = {}
        self.opened = 0
        self.hold = asyncio.Event()
        self.waiting = 0

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.opened = 0

    async def forget(self, session: Session) -> None:
        self.counts.pop(session, None)

    def metrics(self):
        return {"episodes": float(len(self.counts))}

    @tool
    async def count(self, by: int, session: Session) -> str:
        """Add to the episode's count.

        Args:
            by: how much.
        """
        self.counts[session] = self.counts.get(session, 0) + by
        return str(self.counts[session])

    @tool
    async def refuse(self) -> str:
        """Refuse."""
        raise ToolError("not today")

    @tool
    async def mumble(self, aloud: bool) -> str:
        """Say half a surrogate pair, or refuse with one."""
        if aloud:
            return "say \ud800"
        raise ToolError("refuse \udfff")

    @tool
    async def burn(self) -> str:
        """Break down with half a surrogate pair."""
        raise SandboxError("burn \ud800")

    @tool
    async def break_down(self) -> str:
        """Break down."""
        raise SandboxError("the sandbox is on fire")

    @tool
    async def crash(self) -> str:
        """Crash, as a program with a fault does."""
        raise ZeroDivisionError

    @tool
    async def wait(self) -> str:
        """Wait until let go."""
        self.waiting += 1
        await self.hold.wait()
        return "went on"


@pytest.fixture
def service():
    return Counting(ServiceConfig())


@pytest.fixture
async def server(service):
    async with ToolServer(service, ServerConfig(port=0)) as running:
        yield running
