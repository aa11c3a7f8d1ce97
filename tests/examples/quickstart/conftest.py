from pathlib import Path

import pytest

from agar.examples.quickstart import policy


@pytest.fixture(scope="session")
def starting_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy.make(tmp_path_factory.mktemp("policy"), seed=1)
