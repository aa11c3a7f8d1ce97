from pathlib import Path

import pytest

from agar.recipe.start import policy
from agar.recipe.start.transcripts import texts
from agar.rollout.sources.config import DemonstrationsConfig, DemonstratorConfig, PhaseConfig

HUNTS = DemonstrationsConfig(
    env="Hunt-v0",
    kwargs={"sandbox": {"backend": "fake"}},
    phases=(PhaseConfig(agents=(DemonstratorConfig(kwargs={"err": 0.5}),)),),
)


@pytest.fixture(scope="session")
def hunts() -> DemonstrationsConfig:
    """Demonstrations of an environment with tools."""
    return HUNTS


@pytest.fixture(scope="session")
def transcripts() -> list[str]:
    return texts(HUNTS)


@pytest.fixture(scope="session")
def starting_policy(tmp_path_factory: pytest.TempPathFactory, transcripts: list[str]) -> Path:
    return policy.make(tmp_path_factory.mktemp("policy"), transcripts, seed=1)
