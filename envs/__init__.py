"""Environments: the contract, spaces, registry, tools, task sets, and the conformance check."""

if __name__ != "agar.envs":  # reached through the checkout, not the package
    raise ImportError(f"import agar.envs, not {__name__}")

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agar.envs.artifacts import Artifacts
    from agar.envs.base import AsyncEnv, Env, StepResult
    from agar.envs.checker import Check, Report, check_env
    from agar.envs.graded import GradedEnv
    from agar.envs.isolation.config import ProcessLimits
    from agar.envs.parsing import parse_int
    from agar.envs.registry import EnvSpec, make, register, registered, spec
    from agar.envs.rubric import Conversation, Criterion, Rubric
    from agar.envs.runner import AsyncRunner, as_async
    from agar.envs.single_turn import SingleTurnEnv
    from agar.envs.spaces import MessageSpace, Observation, TurnSpace
    from agar.envs.tasks import GeneratedTasks, SeededTasks, TaskCursor, Tasks, TaskSet
    from agar.envs.tasks.source import load_tasks
    from agar.envs.tool_env import ToolEnv, tool
    from agar.envs.vector import make_vec
    from agar.envs.wrappers import Record, ShapeReward, TokenBudget, TruncateObservation, TurnLimit, WallClock, Wrapper

_EXPORTS = {
    "Artifacts": "agar.envs.artifacts",
    "AsyncEnv": "agar.envs.base",
    "AsyncRunner": "agar.envs.runner",
    "Check": "agar.envs.checker",
    "Conversation": "agar.envs.rubric",
    "Criterion": "agar.envs.rubric",
    "Env": "agar.envs.base",
    "EnvSpec": "agar.envs.registry",
    "GeneratedTasks": "agar.envs.tasks",
    "GradedEnv": "agar.envs.graded",
    "MessageSpace": "agar.envs.spaces",
    "Observation": "agar.envs.spaces",
    "ProcessLimits": "agar.envs.isolation.config",
    "Record": "agar.envs.wrappers",
    "Report": "agar.envs.checker",
    "Rubric": "agar.envs.rubric",
    "SeededTasks": "agar.envs.tasks",
    "ShapeReward": "agar.envs.wrappers",
    "SingleTurnEnv": "agar.envs.single_turn",
    "StepResult": "agar.envs.base",
    "TaskCursor": "agar.envs.tasks",
    "TaskSet": "agar.envs.tasks",
    "Tasks": "agar.envs.tasks",
    "TokenBudget": "agar.envs.wrappers",
    "ToolEnv": "agar.envs.tool_env",
    "TruncateObservation": "agar.envs.wrappers",
    "TurnLimit": "agar.envs.wrappers",
    "TurnSpace": "agar.envs.spaces",
    "WallClock": "agar.envs.wrappers",
    "Wrapper": "agar.envs.wrappers",
    "as_async": "agar.envs.runner",
    "check_env": "agar.envs.checker",
    "load_tasks": "agar.envs.tasks.source",
    "make": "agar.envs.registry",
    "make_vec": "agar.envs.vector",
    "parse_int": "agar.envs.parsing",
    "register": "agar.envs.registry",
    "registered": "agar.envs.registry",
    "spec": "agar.envs.registry",
    "tool": "agar.envs.tool_env",
}

__all__ = [
    "Artifacts",
    "AsyncEnv",
    "AsyncRunner",
    "Check",
    "Conversation",
    "Criterion",
    "Env",
    "EnvSpec",
    "GeneratedTasks",
    "GradedEnv",
    "MessageSpace",
    "Observation",
    "ProcessLimits",
    "Record",
    "Report",
    "Rubric",
    "SeededTasks",
    "ShapeReward",
    "SingleTurnEnv",
    "StepResult",
    "TaskCursor",
    "TaskSet",
    "Tasks",
    "TokenBudget",
    "ToolEnv",
    "TruncateObservation",
    "TurnLimit",
    "TurnSpace",
    "WallClock",
    "Wrapper",
    "as_async",
    "check_env",
    "load_tasks",
    "make",
    "make_vec",
    "parse_int",
    "register",
    "registered",
    "spec",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'agar.envs' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
