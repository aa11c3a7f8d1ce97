"""The programs that play episodes: the chat agent, scripted agents, harnesses around existing programs."""

if __name__ != "agar.agents":  # reached through the checkout, not the package
    raise ImportError(f"import agar.agents, not {__name__}")

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agar.agents.build import build_agent
    from agar.agents.chat import ChatAgent
    from agar.agents.config import AgentConfig, ChatConfig, HarnessConfig
    from agar.agents.harness.harness import Harness
    from agar.agents.scripted import ScriptedAgent, ScriptedPolicy, Transcript

_EXPORTS = {
    "AgentConfig": "agar.agents.config",
    "ChatAgent": "agar.agents.chat",
    "ChatConfig": "agar.agents.config",
    "Harness": "agar.agents.harness.harness",
    "HarnessConfig": "agar.agents.config",
    "ScriptedAgent": "agar.agents.scripted",
    "ScriptedPolicy": "agar.agents.scripted",
    "Transcript": "agar.agents.scripted",
    "build_agent": "agar.agents.build",
}

__all__ = [
    "AgentConfig",
    "ChatAgent",
    "ChatConfig",
    "Harness",
    "HarnessConfig",
    "ScriptedAgent",
    "ScriptedPolicy",
    "Transcript",
    "build_agent",
]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'agar.agents' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
