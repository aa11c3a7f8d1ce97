"""Processes for grading that may hang: asked a line at a time, killed at a deadline, started anew.

A thread cannot be ended; a process can, and with it what it has started, as long as that stays in its session. What
runs in it is `answering.py`.
"""

import contextlib
import json
import logging
import os
import queue
import select
import signal
import subprocess
import sys
import time
import weakref
from typing import Any

from agar.errors import EnvError

logger = logging.getLogger(__name__)

SLOWEST = 8
"""How many of the slowest questions are remembered."""
_SHOWN = 200


class NoAnswer(Exception):
    """A question came to nothing; `reason` is `timeout` or `died`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Workers:
    """Some processes that answer questions. Safe to call from several threads; one that finds all busy waits.

    Args:
        module: what each runs, `python -m`; it calls `answering.serve`.
        arguments: its command line.
        count: how many processes; each starts when it is first needed.
        timeout_s: how long an answer may take; then the process is killed.
        start_timeout_s: how long a process may take to start.
    """

    def __init__(
        self, module: str, *arguments: str, count: int = 1, timeout_s: float, start_timeout_s: float = 60.0
    ) -> None:
        self.timeout_s = timeout_s
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._start_timeout_s = start_timeout_s
        self._count = count
        self._free: queue.LifoQueue[_Process | None] = queue.LifoQueue()  # the one used last is the warmest
        for _ in range(count):
            self._free.put(None)
        self.slowest: list[tuple[float, str]] = []
        """The questions that took longest: seconds and the beginning of each, slowest first."""

    def ask(self, question: Any, *, about: str = "") -> Any:
        """Ask, and wait for the answer.

        Args:
            question: anything that JSON holds.
            about: what it is called where it is slow; default its JSON.

        Raises:
            NoAnswer: it took too long, or ended the process twice.
            EnvError: no process comes up, or none became free.
        """
        line = json.dumps(question).encode() + b"\n"
        try:
            process = self._free.get(timeout=self._count * (self.timeout_s + self._start_timeout_s))
        except queue.Empty as error:
            raise EnvError(f"no worker of {self._command[3]} became free: have more of them") from error
        began = time.monotonic()
        try:
            for last in (False, True):
                if process is None or not process.alive():
                    process = _Process(self._command, self._start_timeout_s)
                    began = time.monotonic()
                answer = process.ask(line, self.timeout_s)
                if answer:
                    return json.loads(answer)
                process.end()
                if answer is None:
                    raise NoAnswer("timeout")
                if last:  # the first time it may have died of something else
                    raise NoAnswer("died")
        finally:
            self._note(time.monotonic() - began, about or line.decode()[:_SHOWN].strip())
            self._free.put(process)
        raise AssertionError("both tries have ended")

    def close(self) -> None:
        """End the processes that are free. Each ends with its owner too."""
        free = []
        with contextlib.suppress(queue.Empty):
            while True:
                free.append(self._free.get_nowait())
        for process in free:
            if process is not None:
                process.end()
            self._free.put(None)

    def _note(self, seconds: float, about: str) -> None:
        self.slowest = sorted([*self.slowest, (seconds, about)], reverse=True)[:SLOWEST]
        if seconds >= self.timeout_s:
            logger.warning("grading was ended after %.1f s: %s", seconds, about)


class _Process:
    """One of them."""

    def __init__(self, command: list[str], start_timeout_s: float) -> None:
        # It finds the modules that we find, those beside a recipe among them.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=env,
            start_new_session=True,
        )
        weakref.finalize(self, _kill, self._process)
        first = self._read(start_timeout_s)
        if first == b'"ready"\n':
            return
        self.end()
        if first:
            raise EnvError(f"grading in a process of its own cannot start: {json.loads(first)}")
        how = f"did not start within {start_timeout_s:g} s" if first is None else "ended at its start"
        raise EnvError(f"a process that grades {how}: {' '.join(command)}")

    def alive(self) -> bool:
        """Whether it runs; it is not reaped, for until then no other process can have its id."""
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def ask(self, line: bytes, timeout_s: float) -> bytes | None:
        """The answer; None where it did not come in time, empty where the process died."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
        except BrokenPipeError:
            return b""
        return self._read(timeout_s)

    def end(self) -> None:
        _kill(self._process)

    def _read(self, timeout_s: float) -> bytes | None:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        line = b""
        ready = select.poll()  # select takes no descriptor above 1023, and a process that plays has thousands
        ready.register(self._process.stdout, select.POLLIN)
        while not line.endswith(b"\n"):
            if not ready.poll(max(deadline - time.monotonic(), 0.0) * 1e3):
                return None
            piece = self._process.stdout.read(4096)
            if not piece:
                return b""
            line += piece
        return line


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End it with all that it has started, also where it has ended itself; a second call does nothing."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
