from pathlib import Path

import pytest

from agar.ledger.families import Family, family_for
from agar.ledger.toy import write_toy_model


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def family(model_dir: Path) -> Family:
    return family_for(model_dir)
