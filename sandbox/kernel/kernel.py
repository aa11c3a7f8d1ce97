"""A Python interpreter inside a sandbox, from here: cells in, what they did out."""

import asyncio
import json
import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Protocol, Self

from agar.errors import SandboxError
from agar.sandbox.audit import write_cell
from agar.sandbox.base import Process
from agar.sandbox.kernel.cell import Cell
from agar.sandbox.kernel.config import KernelConfig

_FRAME_BYTES = 16 << 20


class Place(Protocol):
    """What a kernel needs of a sandbox."""

    async def start(self, command: str | Sequence[str], *, timeout_s: float) -> Process:
        """See `Sandbox.start`."""
        ...


class Kernel:
    """Runs cells one after the other; variables stay. Opened by its first cell; an async context manager.

    Whatever a cell does is a `Cell`: data for the agent. A sandbox that could not start or died is a `SandboxError`.

    Args:
        sandbox: where the interpreter runs; the caller closes it.
        config: its settings.
    """

    def __init__(self, sandbox: Place, config: KernelConfig | None = None) -> None:
        self.config = config or KernelConfig()
        self._sandbox = sandbox
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._buffer = bytearray()
        self._cells = 0
        self._name = uuid.uuid4().hex[:12]

    async def run(self, code: str, *, timeout_s: float | None = None) -> Cell:
        """Run a cell; the value of an expression at its end is shown, unless a semicolon follows.

        Args:
            code: Python.
            timeout_s: its deadline in seconds; default the config's.

        Raises:
            SandboxError: the sandbox could not start, died, or has no Python.
        """
        limit_s = self.config.cell_timeout_s if timeout_s is None else timeout_s
        async with self._lock:
            try:
                process = self._process or await self._start()
                self._cells += 1
                began = time.time()
                request = {"do": "run", "cell": self._cells, "code": code, "limit": self.config.output_bytes}
                cell = await self._outcome(process, _frame(request), limit_s)
                write_cell(self._name, self._cells, code, began=began, status=cell.status)
                return cell
            except BaseException:  # cancelled, perhaps, with a cell half done
                await asyncio.shield(self._end())
                raise

    async def interrupt(self) -> None:
        """Interrupt the cell that runs, if one does; its variables are kept."""
        if self._process is not None and self._lock.locked():
            await self._process.write(_frame({"do": "interrupt", "cell": self._cells}))

    async def restart(self) -> None:
        """Forget all variables, once the cell that runs has ended."""
        async with self._lock:
            await self._end()

    async def close(self) -> None:
        """End the interpreter, and what its cells have started. A second call does nothing."""
        await self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _start(self) -> Process:
        source = files("agar.sandbox.kernel").joinpath("worker.py").read_text(encoding="utf-8")
        process = await self._sandbox.start([self.config.python, "-c", source], timeout_s=self.config.life_s)
        self._buffer.clear()
        try:
            async with asyncio.timeout(self.config.start_timeout_s):
                message = await self._receive(process)
        except TimeoutError as error:
            await asyncio.shield(process.close())
            raise SandboxError(
                f"the interpreter was not up within {self.config.start_timeout_s:g} s: is the machine overloaded?"
            ) from error
        except BaseException:
            await asyncio.shield(process.close())
            raise
        if message is None or "ready" not in message:
            ended = await process.close()
            raise SandboxError(
                f"{self.config.python!r} did not start as an interpreter (exit status {ended.code}): "
                f"{ended.stderr.strip()[-500:]}: is there such a Python in the sandbox, and memory and pids enough?"
            )
        self._process = process
        return process

    async def _outcome(self, process: Process, request: bytes, limit_s: float) -> Cell:
        """The end of a cell: by itself, interrupted at its deadline, or killed when it does not care."""
        grace_s = self.config.interrupt_grace_s
        says = (
            (request, limit_s),
            (_frame({"do": "interrupt", "cell": self._cells}), grace_s),
            (_frame({"do": "kill", "cell": self._cells}), grace_s),
        )
        began, overran = time.monotonic(), False
        for said, wait_s in says:
            try:
                async with asyncio.timeout(wait_s):
                    await process.write(said)  # which a supervisor that was stopped does not read
                    reply = await self._receive(process)
            except TimeoutError:
                overran = True
                continue
            cell = self._told(reply, limit_s if overran else None)
            if cell is not None:
                return cell
            break
        await self._end()
        how = f"did not answer within {time.monotonic() - began:.1f} s" if overran else "has gone"
        notice = f"The interpreter {how} and was ended: the next cell begins without variables."
        return Cell(status="died", notices=(notice,))

    def _told(self, reply: Mapping[str, Any] | None, ended_s: float | None) -> Cell | None:
        """A cell from a frame; None where it is not one, as it is when the cell meddled with its supervisor."""
        if reply is None or reply.get("cell") != self._cells:
            return None
        try:
            return Cell.from_reply(reply, deadline_s=ended_s)
        except (KeyError, TypeError, ValueError):
            return None

    async def _receive(self, process: Process) -> Mapping[str, Any] | None:
        """One frame; None where the interpreter has gone, or sends something else. Loses nothing when cancelled."""
        while True:
            if len(self._buffer) >= 4:
                (size,) = struct.unpack(">I", self._buffer[:4])
                if size > _FRAME_BYTES:
                    return None
                if len(self._buffer) >= 4 + size:
                    body = bytes(self._buffer[4 : 4 + size])
                    del self._buffer[: 4 + size]
                    return _object(body)
            data = await process.read()
            if not data:
                return None
            self._buffer += data

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.close()


def _frame(message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
