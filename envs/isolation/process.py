"""The caller's side of an environment's process: start it, ask it, kill it."""

import json
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agar.envs.isolation.channel import QUESTION_BYTES, Channel
from agar.envs.isolation.config import ProcessLimits
from agar.envs.isolation.mark import Mark
from agar.errors import ConfigError, DeadlineError, EnvError, SandboxError
from agar.sandbox import guardian

_WORKER = "agar.envs.isolation.worker"
_GUARDIAN_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 15.0
_POLITE_TIMEOUT_S = 5.0
_LAST_WORDS_S = 5.0


class EnvProcess:
    """One process that serves one environment, under a guardian that ends whatever it has started.

    Where the environment ends or stops its guardian, this ends what is left, which carries a mark.
    Every answer names its question; what names another, or none, ends the process.
    Blocking; one call at a time, but `kill` from any thread.
    """

    def __init__(
        self,
        name: str,
        creator: Any,
        kwargs: Mapping[str, Any],
        limits: ProcessLimits,
        *,
        render_mode: str | None = None,
    ) -> None:
        """Start it and make the environment in it.

        Args:
            name: the environment, for messages.
            creator: what makes it: something importable, or "module:attribute".
            kwargs: its arguments.
            limits: what it may use.
            render_mode: `ansi` where it is to be drawn.

        Raises:
            ConfigError: the creator or an argument cannot be handed to another process.
            EnvError: it could not be made, in time and within its memory.
        """
        self.name, self.limits = name, limits
        if getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) == _WORKER:
            raise ConfigError(
                f"{name} is being made by the very process that is to serve it: put what a script does, beside "
                'definitions, under `if __name__ == "__main__":`'
            )
        try:
            request = pickle.dumps(("make", (creator, dict(kwargs), render_mode)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f'{name} cannot be made in a process of its own: {error}; register something importable, or "module:'
                'attribute", with plain arguments'
            ) from error
        self._lock = threading.Lock()
        self._over: str | None = None
        self._mark = Mark()
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", _WORKER, str(theirs.fileno())]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, str(os.getpid()), "0", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={  # sets are iterated in the same order in each of them, so that a careless draw is the same too
                    "PYTHONHASHSEED": "0",
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    self._mark.name: "1",
                },
            )
        self._channel = Channel(ours)
        setup = {
            "name": name,
            "memory_mib": limits.memory_mib,
            "path": sys.path,
            "main": getattr(sys.modules["__main__"], "__file__", None) if _in_main(creator) else None,
        }
        try:
            self._channel.send(json.dumps(setup).encode(), timeout_s=limits.start_timeout_s)
            self.about: dict[str, Any] = self._exchange(request, limits.start_timeout_s, "constructor")
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The guardian's process id; the environment's processes are below it."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once it was ended, or has failed in a way that ended it."""
        return self._over is None

    def ask(self, what: str, *arguments: Any, timeout_s: float) -> Any:
        """Have a method of the environment called, and wait for what it gives.

        Args:
            what: `reset`, `step`, `gold`, `render`, `release` or `close`.
            arguments: its arguments; they can be pickled.
            timeout_s: the deadline, after which the process is killed.

        Returns:
            The answer, as JSON gives it.

        Raises:
            SandboxError: the environment raised it: an infrastructure failure.
            EnvError: anything else that went wrong; the message names it.
        """
        return self._exchange(pickle.dumps((what, arguments)), timeout_s, what)

    def kill(self) -> None:
        """End everything at once, without waiting; a call that waits for an answer fails. Idempotent."""
        self._over = self._over or "it was ended"
        self._channel.shut()
        with suppress(OSError):
            self._stdin().close()
        self._process.send_signal(signal.SIGCONT)  # a guardian that the environment stopped

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
                raise DeadlineError(f"the process of {self.name} did not end within {_END_TIMEOUT_S:g} s")
        finally:
            self._channel.close()

    def close(self) -> None:
        """Have the environment closed, if it still answers, then end the process. Idempotent."""
        try:
            if self.alive:
                self.ask("close", timeout_s=_POLITE_TIMEOUT_S)
        except (EnvError, SandboxError):
            pass  # its last word changes nothing any more
        finally:
            self.end()

    def _without_guardian(self) -> bool:
        """Do what a guardian could not that was killed, or is stopped again and again; False where some are left."""
        if self._process.poll() is None:
            for pid in guardian.descendants(self._process.pid):  # while it still is their ancestor
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.kill()
        elif self._process.returncode >= 0:
            return True
        cleared = self._mark.clear(timeout_s=_END_TIMEOUT_S)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        return cleared and self._process.returncode is not None

    def _exchange(self, request: bytes, timeout_s: float, what: str) -> Any:
        question = secrets.token_hex(QUESTION_BYTES // 2)
        with self._lock:
            if self._over is not None:
                raise EnvError(f"the process of {self.name} is gone ({self._over}): reset it to start another")
            try:
                self._channel.send(question.encode() + request, timeout_s=timeout_s)
                data = self._channel.receive(max_bytes=self.limits.reply_mib << 20, timeout_s=timeout_s)
                answer = json.loads(data)
                if not (isinstance(answer, dict) and answer.keys() & {"result", "fault"}):
                    raise EnvError("an answer that is none")
                if answer.get("question") != question:
                    raise EnvError("an answer to no question: something else wrote to its socket")
            except DeadlineError:
                raise self.failed(f"{self.name}.{what} did not return within {timeout_s:g} s") from None
            except EOFError:
                raise self.failed(f"{self.name}.{what}: {self._how_it_ended()}") from None
            except (ValueError, RecursionError, EnvError) as error:
                text = str(error) if isinstance(error, EnvError) else "an answer that is not JSON"
                raise self.failed(f"{self.name}.{what} gave {text}") from None
        if "fault" not in answer:
            return answer["result"]
        text = str(answer["fault"])
        if answer.get("over") is True:
            raise self.failed(text)
        raise SandboxError(text) if answer.get("sandbox") is True else EnvError(text)

    def failed(self, reason: str) -> EnvError:
        """End it for a reason; gives the error to raise."""
        if self._over is not None:  # somebody else ended it meanwhile
            return EnvError(f"the process of {self.name} is gone ({self._over})")
        self._over = reason
        self.kill()
        return EnvError(f"{reason}; its process was ended")

    def _how_it_ended(self) -> str:
        """Say how the process ended; it has closed its socket, and ends now, or still runs without it."""
        try:
            code = self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return "its process closed the connection"
        if code < 0:
            return f"the guardian of its process was killed by {signal.Signals(-code).name}"
        if code > 128 and code - 128 in set(signal.Signals):
            return f"its process was killed by {signal.Signals(code - 128).name}"
        return f"its process ended itself with exit code {code}"

    def _stdin(self) -> Any:
        assert self._process.stdin is not None
        return self._process.stdin


def _in_main(creator: Any) -> bool:
    return getattr(creator, "__module__", None) == "__main__"
