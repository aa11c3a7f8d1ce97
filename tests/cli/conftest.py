"""A small run for the commands that read one: everything is real but the engine, which says random words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agar.cli.main import main


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, write_servable_model: Callable[[Path], Path]) -> Path:
    """The folder of `agar rollout`: four episodes of Guess-v0 in `traces/rollouts.jsonl`. Only to be read."""
    pytest.importorskip("uvicorn")
    root = tmp_path_factory.mktemp("small_run")
    model = write_servable_model(root / "model")
    (root / "recipe.toml").write_text(f"""
[run]
dir = "{root / "runs"}"
[policies.main]
model = "{model}"
[engines]
backend = "fake"
router = "none"
[rollout]
group_size = 2
sampling = {{ max_tokens = 16 }}
[[tasks]]
env = "Guess-v0"
""")
    assert main(["rollout", str(root / "recipe.toml"), "--groups", "2"]) == 0
    (folder,) = (root / "runs").iterdir()
    return folder
