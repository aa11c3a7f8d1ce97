"""Where SGLang is installed: in this environment, or in one of its own beside it."""

import importlib.util
import os
import sys
from pathlib import Path

from agar.rollout.engines.config import EnginesConfig

VARIABLE = "AGAR_ENGINE_PYTHON"


def engine_python(config: EnginesConfig | None = None) -> str | None:
    """The interpreter that runs SGLang.

    The first of: `engines.python`; the environment variable AGAR_ENGINE_PYTHON; `engine/bin/python` inside this
    environment, where `make env` links the engine's own; this interpreter, if it has SGLang.

    Returns:
        Its path; None where there is none of these. A path that was named is not checked.
    """
    named = (config.python if config is not None else "") or os.environ.get(VARIABLE, "")
    if named:
        return named
    beside = Path(sys.prefix) / "engine" / "bin" / "python"
    if beside.exists():
        return str(beside)
    return sys.executable if importlib.util.find_spec("sglang") is not None else None
