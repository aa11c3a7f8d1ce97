"""What a test registers is gone after it."""

import gymnasium
import pytest

from agar.envs import registry


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
