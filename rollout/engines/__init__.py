"""Inference engines: servers, router, client, weight delivery, and the fake engine that tests use.

The nouns, loaded when first named so that importing this folder loads no third-party module:

- `EnginesConfig`: settings; `EnginePool`: starts, watches and restarts engines and receives weights.
- `RouterClient`: the `Engine` protocol over `/generate`; `Gate`: holds calls while weights change.
- `FakeEngine`: the same HTTP surface in this process; its model is `HashLM`.
"""

import importlib
from typing import Any

if __name__ != "agar.rollout.engines":  # reached through the checkout, not the package
    raise ImportError(f"import agar.rollout.engines, not {__name__}")

_HOME = {
    "EnginePool": "pool",
    "EnginesConfig": "config",
    "FakeEngine": "fake",
    "Fault": "faults",
    "Gate": "gate",
    "HashLM": "hashlm",
    "RouterClient": "client",
}

__all__ = ["EnginePool", "EnginesConfig", "FakeEngine", "Fault", "Gate", "HashLM", "RouterClient"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
