"""A module in a process of its own, under a guardian, at the other end of a channel."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agar.envs.isolation.channel import Channel
from agar.envs.isolation.mark import Mark
from agar.errors import DeadlineError
from agar.sandbox import guardian

_GUARDIAN_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 15.0
_LAST_WORDS_S = 5.0


class GuardedProcess:
    """`python -m MODULE FD`, with all that it starts.

    The guardian ends whatever the module has started. Where the module ends or stops its guardian, this ends what is
    left, which carries a mark.
    """

    def __init__(
        self, module: str, *, what: str, variables: Mapping[str, str] | None = None, output: int = subprocess.DEVNULL
    ) -> None:
        """Start it.

        Args:
            module: it finds the file descriptor of its end of the channel as its only argument.
            what: it, for messages.
            variables: of its environment, where this process does not set them already.
            output: where what it prints goes, a file descriptor.
        """
        self.what = what
        self._mark = Mark()
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", module, str(theirs.fileno())]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, str(os.getpid()), "0", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={
                    **(variables or {}),
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    self._mark.name: "1",
                },
            )
        self.channel = Channel(ours)
        """This process's end."""

    @property
    def pid(self) -> int:
        """The guardian's process id; the module's processes are below it."""
        return self._process.pid

    def kill(self) -> None:
        """End everything at once, without waiting; who waits at the channel gets an `EOFError`. Idempotent."""
        self.channel.shut()
        with suppress(OSError):
            self._stdin().close()
        self._process.send_signal(signal.SIGCONT)  # a guardian that was stopped

    def end(self) -> None:
        """`kill`, and wait until it is over. Idempotent.

        Raises:
            DeadlineError: something of it is left after half a minute.
        """
        self.kill()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GUARDIAN_TIMEOUT_S)
            if not self._without_guardian():
                raise DeadlineError(f"{self.what} did not end within {_GUARDIAN_TIMEOUT_S + _END_TIMEOUT_S:g} s")
        finally:
            self.channel.close()

    def how_it_ended(self) -> str:
        """Say how it ended; it has closed its end of the channel, and ends now, or still runs without it."""
        try:
            code = self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return "its process closed the connection"
        if code < 0:
            return f"the guardian of its process was killed by {signal.Signals(-code).name}"
        if code > 128 and code - 128 in set(signal.Signals):
            return f"its process was killed by {signal.Signals(code - 128).name}"
        return f"its process ended itself with exit code {code}"

    def _without_guardian(self) -> bool:
        """Do what a guardian could not that was killed, or is stopped again and again; False where some are left."""
        if self._process.poll() is None:
            for pid in guardian.descendants(self._process.pid):  # while it still is their ancestor
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.kill()
        elif self._process.returncode >= 0:
            return True
        until = time.monotonic() + _END_TIMEOUT_S
        cleared = self._mark.clear(timeout_s=_END_TIMEOUT_S)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - time.monotonic()))
        return cleared and self._process.returncode is not None

    def _stdin(self) -> Any:
        assert self._process.stdin is not None
        return self._process.stdin
