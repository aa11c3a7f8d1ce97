"""A command that the keeper runs, seen from here: its streams, and how it ended."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from typing import Any, get_args

from agar.errors import SandboxError
from agar.sandbox.base import ExecResult, KilledBy
from agar.sandbox.keeper import receive
from agar.sandbox.streams import Stream, readable

CLOSE_TIMEOUT_S = 15.0
"""How long the end of a killed process tree may take."""


def ask_for_end(reply: socket.socket, reason: bytes) -> None:
    """Ask the keeper to kill a command for a reason."""
    with contextlib.suppress(OSError):  # it has just ended by itself
        reply.send(reason, socket.MSG_DONTWAIT)


async def follow(reply: socket.socket, out: Stream, err: Stream, timeout_s: float) -> bytes:
    """Read output until the keeper reports the end; ask it to kill when there is too much, or we are cancelled.

    Returns:
        The report; empty where the keeper died.
    """

    def overflow() -> None:
        ask_for_end(reply, b"output")

    with out.reading(overflow), err.reading(overflow):
        try:
            await readable(reply, timeout_s + CLOSE_TIMEOUT_S)
        except TimeoutError as error:
            raise SandboxError(
                f"a command was not gone {CLOSE_TIMEOUT_S:g} s after its deadline: is the machine out of memory?"
            ) from error
        except asyncio.CancelledError:
            reply.shutdown(socket.SHUT_WR)
            await asyncio.shield(asyncio.ensure_future(gone(reply.dup(), "a cancelled command was not gone")))
            raise
        message, _ = receive(reply)
        out.drain()
        err.drain()
    return message


async def gone(link: socket.socket, complaint: str) -> None:
    """Wait until the keeper says that something has gone. Owns the socket, so it may outlive a cancelled caller."""
    with link:
        try:
            await readable(link, CLOSE_TIMEOUT_S)
        except TimeoutError as error:
            raise SandboxError(
                f"{complaint} {CLOSE_TIMEOUT_S:g} s after it was killed: look for stuck processes with ps"
            ) from error


def result_of(answer: Mapping[str, Any], out: Stream | None, err: Stream) -> ExecResult:
    """A command's result from the keeper's report.

    Args:
        answer: the report.
        out: its output; None where that went to whoever talked to it.
        err: its errors.

    Raises:
        SandboxError: it could not be isolated, or the sandbox was closed around it.
    """
    if answer["killed_by"] == "closed":
        raise SandboxError("the sandbox was closed while a command ran in it: await the command before closing")
    if not answer["started"] and answer["killed_by"] is None:
        reason = answer["error"] or err.text().strip() or "bwrap ended before the command began"
        if answer.get("crowded"):  # another command here may have taken the last process: not our failure
            return ExecResult(code=126, stderr=f"not started beside other commands: {reason}\n")
        raise SandboxError(f"a command could not be isolated: {reason}")
    return ExecResult(
        code=answer["code"],
        stdout=out.text() if out is not None else "",
        stderr=err.text(),
        truncated=err.truncated or (out is not None and out.truncated),
        wall_s=answer["wall_s"],
        killed_by=answer["killed_by"] if answer["killed_by"] in get_args(KilledBy) else None,
    )
