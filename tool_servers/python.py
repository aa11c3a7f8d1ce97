"""Python for agents: an interpreter in a sandbox for every episode, which keeps its variables."""

import asyncio
import contextlib
from collections import Counter, deque
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from agar.errors import SandboxError
from agar.sandbox.base import Sandbox
from agar.sandbox.config import SandboxSpec
from agar.sandbox.kernel.cell import Cell
from agar.sandbox.kernel.config import KernelConfig
from agar.sandbox.kernel.kernel import Kernel
from agar.tool_servers.base import NO_SESSION, Deadline, Session
from agar.tool_servers.config import ServiceConfig
from agar.tool_servers.service import CONTROL, Service
from agar.tool_servers.text import Text
from agar.tool_servers.tools import tool
from agar.types import Metrics

if TYPE_CHECKING:
    from fastapi import APIRouter

_REMEMBERED = 10_000


class PythonConfig(ServiceConfig):
    """Interpreters for episodes."""

    sandbox: SandboxSpec = Field(default_factory=SandboxSpec)
    """What each one runs in."""
    kernel: KernelConfig = Field(default_factory=KernelConfig)
    """The interpreter and the deadlines of its cells."""
    sessions: int = Field(256, ge=1)
    """Interpreters at a time; an episode beyond fails as one whose sandbox did not start."""
    idle_s: float = Field(1800.0, gt=0)
    """An interpreter that nobody has used for so long is ended, in seconds: its client has died without a word."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    sandbox: Sandbox
    kernel: Kernel
    calls: int = 0
    patience: asyncio.TimerHandle | None = None  # set while nobody uses it


class CellRequest(BaseModel):
    """A cell to run."""

    code: str
    timeout_s: float | None = Field(None, gt=0)
    """Deadline in seconds; the kernel's own where it is shorter."""


class CellReply(BaseModel):
    """What a cell did; see `agar.sandbox.kernel.cell.Cell`."""

    status: str
    output: Text
    cut_bytes: int
    shown: list[dict[Text, Text | None]]
    error: Text | None
    notices: list[str]


class Python(Service[PythonConfig]):
    """Runs Python in a sandbox; variables are kept for the episode."""

    settings = PythonConfig

    def __init__(self, config: PythonConfig | None = None) -> None:
        """Nothing starts before the first cell."""
        super().__init__(config or PythonConfig())
        self._held: dict[Session, _Held] = {}
        self._expired: deque[Session] = deque(maxlen=_REMEMBERED)
        self._counts: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @tool
    async def python(self, code: str, session: Session, deadline: Deadline) -> str:
        """Run Python code and read what it prints. Variables, functions and imports are kept for the next call.

        The value of an expression on the last line is shown too.

        Args:
            code: the program.
            session: the episode.
            deadline: how long it may run.
        """
        cell = await self.run(code, session=session, timeout_s=deadline)
        return cell.to_text() or "(no output)"

    async def run(self, code: str, *, session: Session = NO_SESSION, timeout_s: float | None = None) -> Cell:
        """Run a cell in an episode's interpreter, or in a fresh one that is closed afterwards.

        Args:
            code: Python.
            session: the episode.
            timeout_s: deadline in seconds; the kernel's own where it is shorter.

        Raises:
            SandboxError: there is no room, or the sandbox could not start or died.
        """
        limit_s = min(timeout_s or self.config.kernel.cell_timeout_s, self.config.kernel.cell_timeout_s)
        expired = session in self._expired
        held = self._of(session)
        held.calls += 1
        if held.patience is not None:
            held.patience.cancel()
        try:
            cell = await held.kernel.run(code, timeout_s=limit_s)
        except SandboxError:
            await self._drop(session, held)
            raise
        finally:
            held.calls -= 1
            if session == NO_SESSION:
                await asyncio.shield(_closed(held))
            elif not held.calls:
                loop = asyncio.get_running_loop()
                held.patience = loop.call_later(self.config.idle_s, self._expire, session, held)
        self._counts[f"cells_{cell.status}"] += 1
        if expired:
            with contextlib.suppress(ValueError):  # another cell of the session was told, too
                self._expired.remove(session)
            lost = f"Nobody used the interpreter for {self.config.idle_s:g} s: this is a new one, without variables."
            cell = replace(cell, notices=(lost, *cell.notices))
        return cell

    async def close(self) -> None:
        """End all interpreters.

        Raises:
            SandboxError: one could not be ended; the others were.
        """
        outcomes = await asyncio.gather(*map(self.forget, list(self._held)), return_exceptions=True)
        if self._closing:
            await asyncio.wait(self._closing)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def forget(self, session: Session) -> None:
        """End an episode's interpreter."""
        held = self._held.pop(session, None)
        if held is not None:
            if held.patience is not None:
                held.patience.cancel()
            await asyncio.shield(_closed(held))

    def metrics(self) -> Metrics:
        """Interpreters that run, and cells by how they ended."""
        return {"python_sessions": float(len(self._held)), **{f"python_{k}": float(v) for k, v in self._counts.items()}}

    def routes(self) -> "APIRouter":
        """Cells with all they show, interrupts, restarts."""
        from fastapi import APIRouter

        router = APIRouter(prefix="/sessions/{session}", tags=["python"])

        @router.post("/cells")
        async def run_cell(session: str, request: CellRequest) -> CellReply:
            """Run a cell."""
            cell = await self.run(request.code, session=Session(session), timeout_s=request.timeout_s)
            return CellReply.model_validate(asdict(cell))

        @router.post("/interrupt", status_code=204, tags=[CONTROL])
        async def interrupt(session: str) -> None:
            """Interrupt the cell that runs; its variables are kept."""
            if (held := self._held.get(Session(session))) is not None:
                await held.kernel.interrupt()

        @router.post("/restart", status_code=204)
        async def restart(session: str) -> None:
            """Forget all variables."""
            if (held := self._held.get(Session(session))) is not None:
                await held.kernel.restart()

        return router

    def make_sandbox(self) -> Sandbox:
        """What an interpreter runs in, not started; override it to bring another kind."""
        from agar.sandbox.factory import create

        return create(self.config.sandbox)

    def _of(self, session: Session) -> _Held:
        held = self._held.get(session)
        if held is None:
            if len(self._held) >= self.config.sessions:
                raise SandboxError(
                    f"{self.config.sessions} interpreters run, as many as may be: end some, or raise `sessions`"
                )
            sandbox = self.make_sandbox()
            held = _Held(sandbox=sandbox, kernel=Kernel(sandbox, self.config.kernel))
            if session != NO_SESSION:
                self._held[session] = held
        return held

    async def _drop(self, session: Session, held: _Held) -> None:
        """Let go of an interpreter whose sandbox has failed."""
        if self._held.get(session) is held:
            del self._held[session]
        await asyncio.shield(_quietly_closed(held))  # the first failure is the one to tell

    def _expire(self, session: Session, held: _Held) -> None:
        """End an interpreter that nobody has used for long."""
        if self._held.get(session) is held:
            del self._held[session]
            self._expired.append(session)
            self._counts["expired"] += 1
            closing = asyncio.get_running_loop().create_task(_quietly_closed(held))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _quietly_closed(held: _Held) -> None:
    with contextlib.suppress(SandboxError):  # its backend keeps after it
        await _closed(held)


async def _closed(held: _Held) -> None:
    try:
        await held.kernel.close()
    finally:
        await held.sandbox.close()
