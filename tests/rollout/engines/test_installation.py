"""Which interpreter runs SGLang."""

import sys
from pathlib import Path

import pytest

from agar.rollout.engines.config import EnginesConfig
from agar.rollout.engines.installation import engine_python


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment with the engine's own linked into it."""
    monkeypatch.delenv("AGAR_ENGINE_PYTHON", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    python = tmp_path / "engine" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_settings_win_over_the_variable_and_that_over_the_linked_one(
    monkeypatch: pytest.MonkeyPatch, beside: Path
) -> None:
    assert engine_python(EnginesConfig()) == str(beside)
    monkeypatch.setenv("AGAR_ENGINE_PYTHON", "/named")
    assert engine_python(EnginesConfig()) == "/named"
    assert engine_python(EnginesConfig(python="/set")) == "/set"


def test_without_any_there_is_none_unless_this_one_has_sglang(beside: Path) -> None:
    beside.unlink()
    assert engine_python() is None
