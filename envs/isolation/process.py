"""The caller's side of an environment's process: start it, ask it, kill it."""

import json
import os
import pickle
import secrets
import sys
import threading
from collections.abc import Mapping
from typing import Any

from agar.envs.isolation.channel import QUESTION_BYTES
from agar.envs.isolation.config import ProcessLimits
from agar.envs.isolation.guarded import GuardedProcess
from agar.errors import ConfigError, DeadlineError, EnvError, SandboxError

_WORKER = "agar.envs.isolation.worker"
_POLITE_TIMEOUT_S = 5.0


class EnvProcess:
    """One process that serves one environment, under a guardian that ends whatever it has started.

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
        main = _script(name) if getattr(creator, "__module__", None) == "__main__" else None
        self._lock = threading.Lock()
        self._over: str | None = None
        self._process = GuardedProcess(
            _WORKER,
            what=f"the process of {name}",
            variables={"PYTHONHASHSEED": "0"},  # sets have the same order in each, so that a careless draw is the same
        )
        setup = {
            "name": name,
            "memory_mib": limits.memory_mib,
            "path": sys.path,
            "main": main,
        }
        try:
            self._process.channel.send(json.dumps(setup).encode(), timeout_s=limits.start_timeout_s)
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
        self._process.kill()

    def end(self) -> None:
        """`kill`, and wait until it is over. Idempotent.

        Raises:
            DeadlineError: something of it is left after half a minute.
        """
        self.kill()
        self._process.end()

    def close(self) -> None:
        """Have the environment closed, if it still answers, then end the process. Idempotent."""
        try:
            if self.alive:
                self.ask("close", timeout_s=_POLITE_TIMEOUT_S)
        except (EnvError, SandboxError):
            pass  # its last word changes nothing any more
        finally:
            self.end()

    def _exchange(self, request: bytes, timeout_s: float, what: str) -> Any:
        question = secrets.token_hex(QUESTION_BYTES // 2)
        with self._lock:
            if self._over is not None:
                raise EnvError(f"the process of {self.name} is gone ({self._over}): reset it to start another")
            try:
                self._process.channel.send(question.encode() + request, timeout_s=timeout_s)
                data = self._process.channel.receive(max_bytes=self.limits.reply_mib << 20, timeout_s=timeout_s)
                answer = json.loads(data)
                if not (isinstance(answer, dict) and answer.keys() & {"result", "fault"}):
                    raise EnvError("an answer that is none")
                if answer.get("question") != question:
                    raise EnvError("an answer to no question: something else wrote to its socket")
            except DeadlineError:
                raise self.failed(f"{self.name}.{what} did not return within {timeout_s:g} s") from None
            except EOFError:
                raise self.failed(f"{self.name}.{what}: {self._process.how_it_ended()}") from None
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


def _script(name: str) -> str:
    """The file of this process's `__main__`, for the other one to read."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or not os.path.isfile(path):
        raise ConfigError(
            f"{name} is defined where no other process can read it (standard input, `python -c`, a notebook): put it "
            'into a file, say my_module.py, and make "my_module:' + name + '"'
        )
    return str(path)
