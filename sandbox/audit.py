"""One line of JSON for every command that ran in a sandbox, for whoever wants to know later what a model has done.

One that was started and talked to has its line when it ends; a kernel writes one for every cell.

The lines go to the logger `agar.sandbox.audit` at level INFO and cost nothing while nobody listens. They hold names of
environment variables and sizes of inputs and outputs, never their content.
"""

import json
import logging
import time
import uuid
from collections.abc import Awaitable

from agar.sandbox.base import ExecResult
from agar.sandbox.command import Command

logger = logging.getLogger(__name__)
_SHOWN_CHARACTERS = 2000


class Audit:
    """The lines of one sandbox."""

    def __init__(self, backend: str) -> None:
        """Give the sandbox a name of its own.

        Args:
            backend: what isolates it.
        """
        self.backend = backend
        self.sandbox = uuid.uuid4().hex[:12]

    async def of(self, job: Command, work: Awaitable[ExecResult]) -> ExecResult:
        """Await a command and write its line, whatever comes of it.

        Args:
            job: the command.
            work: what runs it.
        """
        began, result, error = time.time(), None, None
        try:
            result = await work
            return result
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self.write(job, began, result, error)

    def write(self, job: Command, began: float, result: ExecResult | None, error: str | None = None) -> None:
        """Write the line of a command that has ended.

        Args:
            job: the command.
            began: when it began, in seconds since the epoch.
            result: what it did; None where an error stands for it.
            error: the name of that error.
        """
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s", json.dumps(self._line(job, began, result, error)))

    def _line(self, job: Command, began: float, result: ExecResult | None, error: str | None) -> dict[str, object]:
        line: dict[str, object] = {
            "time": began,
            "sandbox": self.sandbox,
            "backend": self.backend,
            "words": [word[:_SHOWN_CHARACTERS] for word in job.words],
            "cwd": job.cwd,
            "env": sorted(job.env),
            "stdin_bytes": len(job.stdin),
            "timeout_s": job.timeout_s,
            "error": error,
        }
        if result is not None:
            line |= {
                "code": result.code,
                "killed_by": result.killed_by,
                "truncated": result.truncated,
                "wall_s": round(result.wall_s, 6),
                "stdout_characters": len(result.stdout),
                "stderr_characters": len(result.stderr),
            }
        return line


def write_cell(kernel: str, number: int, code: str, *, began: float, status: str) -> None:
    """Write the line of a kernel's cell.

    Args:
        kernel: the kernel's name.
        number: of the cell.
        code: what was run.
        began: when, in seconds since the epoch.
        status: how it ended, or the name of an error.
    """
    if logger.isEnabledFor(logging.INFO):
        line = {
            "time": began,
            "kernel": kernel,
            "cell": number,
            "code": code[:_SHOWN_CHARACTERS],
            "status": status,
            "wall_s": round(time.time() - began, 6),
        }
        logger.info("%s", json.dumps(line))
