"""Existing programs as agents: started with the task, pointed at the gateway, judged by what they leave."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agar.agents.config import HarnessConfig
    from agar.agents.harness.harness import Harness

_EXPORTS = {"Harness": "agar.agents.harness.harness", "HarnessConfig": "agar.agents.config"}

__all__ = ["Harness", "HarnessConfig"]


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'agar.agents.harness' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
