"""The environment's side: `python -m agar.envs.isolation.worker FD` serves one environment over a socket.

Requests come as pickles, since the caller is trusted here; answers go as JSON, since nothing that an environment sends
may run anything in the caller.
"""

import json
import os
import pickle
import resource
import runpy
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from agar.envs.base import AsyncEnv, Env, gold_of
from agar.envs.contract import checked_reset, checked_step, told
from agar.envs.isolation.channel import QUESTION_BYTES, Channel
from agar.envs.spaces import MessageSpace, TurnSpace
from agar.errors import AgarError, EnvError, SandboxError
from agar.types import Message

MAX_REQUEST_BYTES = 1 << 30


class Server:
    """One environment and what it was asked."""

    def __init__(self, name: str, memory_mib: int) -> None:
        """Serve nothing yet; `make` comes first."""
        self.name, self.memory_mib = name, memory_mib
        self.env: Any = None

    def make(self, creator: Any, kwargs: dict[str, Any], render_mode: str | None) -> dict[str, Any]:
        """Make the environment; says what the caller has to know of it."""
        from agar.envs.entry_points import load

        self.env = (load(creator) if isinstance(creator, str) else creator)(**kwargs)
        if render_mode is not None:
            self.env.unwrapped.render_mode = render_mode
        tools = getattr(self.env.unwrapped, "tools", ())
        return {
            "tools": [{"name": t.name, "description": t.description, "parameters": dict(t.parameters)} for t in tools]
        }

    def reset(self, seed: int | None, options: Any) -> Any:
        """Start an episode."""
        result = self.env.reset(seed=seed, options=options)
        checked_reset(result, name=self.name)
        return {"observation": _observation(result[0]), "info": result[1]}

    def step(self, action: Any) -> Any:
        """Take one turn."""
        result = self.env.step(action)
        _, reward, terminated, truncated, info = checked_step(result, name=self.name)
        return {
            "observation": _observation(result[0]),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "info": info,
        }

    def gold(self) -> Any:
        """The environment's own best turn."""
        turn = gold_of(self.env.unwrapped) if isinstance(self.env.unwrapped, Env) else None
        return None if turn is None else TurnSpace().to_jsonable([turn])[0]

    def render(self) -> str | None:
        """What it draws, where that is a text."""
        drawn = self.env.render()
        return drawn if isinstance(drawn, str) else None

    def release(self) -> None:
        """Let go of what the episode holds."""
        if isinstance(self.env.unwrapped, AsyncEnv):
            self.env.unwrapped.release()

    def close(self) -> None:
        """Close it."""
        if self.env is not None:
            self.env.close()

    def answer(self, request: tuple[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Do what is asked; what goes wrong is an answer too."""
        what, arguments = request
        try:
            return {"result": getattr(self, what)(*arguments)}
        except MemoryError:
            return {**_fault(f"{self.name}.{what} ran out of its {self.memory_mib} MiB of memory"), "over": True}
        except SandboxError as error:
            return {"fault": told(error), "sandbox": True}
        except EnvError as error:
            return _fault(str(error))
        except AgarError as error:
            return _fault(f"{self.name}.{what}: {told(error)}")
        except Exception as error:
            return _fault(f"{self.name}.{what} raised {told(error)}")
        except BaseException as error:  # it asks for the end of the process, and its event loop has ended by it
            return {**_fault(f"{self.name}.{what} raised {told(error)}"), "over": True}


def main(fd: int) -> None:
    """Serve until the caller leaves."""
    channel = Channel(socket.socket(fileno=fd))
    setup = json.loads(channel.receive(max_bytes=MAX_REQUEST_BYTES))
    _limit(setup["memory_mib"])
    sys.path[:] = setup["path"]
    server = Server(setup["name"], setup["memory_mib"])
    broken = _main_module(setup["main"], server.name)
    while True:
        try:
            data = channel.receive(max_bytes=MAX_REQUEST_BYTES)
        except EOFError:
            return
        question, data = data[:QUESTION_BYTES].decode(), data[QUESTION_BYTES:]
        try:
            request = pickle.loads(data)
        except Exception as error:
            answer = broken or _fault(f"{server.name} cannot be made in a process of its own: {told(error)}")
        else:
            answer = server.answer(request)
        channel.send(_encoded(answer, question, server.name))
        if answer.get("over"):
            return


def _limit(memory_mib: int) -> None:
    for name, value in ((resource.RLIMIT_DATA, memory_mib << 20), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))
    with suppress(OSError):  # where memory runs out all the same, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000")


def _main_module(path: str | None, name: str) -> dict[str, Any] | None:
    """Run the caller's script under another name, so that classes of its `__main__` are found, as multiprocessing does.

    Returns:
        What went wrong, as an answer.
    """
    if path is None:
        return None
    module = ModuleType("__mp_main__")
    try:
        module.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))
    except BaseException as error:
        return _fault(f"{name} cannot be made in a process of its own, since {path} raised {told(error)}")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    return None


def _observation(observation: Any) -> Any:
    if not isinstance(observation, str | Message):
        observation = list(observation)
    return MessageSpace().to_jsonable([observation])[0]


def _encoded(answer: dict[str, Any], question: str, name: str) -> bytes:
    try:
        return json.dumps({**answer, "question": question}, default=_plain).encode()
    except MemoryError:
        fault = _fault(f"{name} gave more than its memory holds as JSON")
    except Exception as error:
        fault = _fault(f"{name} gave an info that is not JSON-able ({told(error)}): use plain values")
    return json.dumps({**fault, "question": question}).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"no JSON for a {type(value).__name__}")


def _fault(text: str) -> dict[str, Any]:
    return {"fault": text}


if __name__ == "__main__":
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    main(int(sys.argv[1]))
