"""agar: agent environments with an RL training backend.

Importing this package loads no third-party module; the names below are resolved on first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agar.envs.base import AsyncEnv, Env
    from agar.envs.parsing import parse_int
    from agar.envs.registry import make, register, spec
    from agar.envs.single_turn import SingleTurnEnv
    from agar.envs.tool_env import ToolEnv, tool
    from agar.envs.vector import make_vec
    from agar.types import Message, Outcome, Reward, Sample, TaskRow, ToolCall, ToolSpec, Turn

__version__ = "0.1.0"

_EXPORTS = {
    "AsyncEnv": "agar.envs.base",
    "Env": "agar.envs.base",
    "Message": "agar.types",
    "Outcome": "agar.types",
    "Reward": "agar.types",
    "Sample": "agar.types",
    "SingleTurnEnv": "agar.envs.single_turn",
    "TaskRow": "agar.types",
    "ToolCall": "agar.types",
    "ToolEnv": "agar.envs.tool_env",
    "ToolSpec": "agar.types",
    "Turn": "agar.types",
    "make": "agar.envs.registry",
    "make_vec": "agar.envs.vector",
    "parse_int": "agar.envs.parsing",
    "register": "agar.envs.registry",
    "spec": "agar.envs.registry",
    "tool": "agar.envs.tool_env",
}

__all__ = [
    "AsyncEnv",
    "Env",
    "Message",
    "Outcome",
    "Reward",
    "Sample",
    "SingleTurnEnv",
    "TaskRow",
    "ToolCall",
    "ToolEnv",
    "ToolSpec",
    "Turn",
    "__version__",
    "make",
    "make_vec",
    "parse_int",
    "register",
    "spec",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'agar' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
