"""One line of JSON for every command that ran in a sandbox, for whoever wants to know later what a model has done.

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
