"""A small run for the commands that read one: everything is real but the engine, which says random words."""

import json
from pathlib import Path

import pytest

from agar.cli.main import main
from agar.ledger.toy import write_toy_model


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `agar rollout`: four episodes of Guess-v0 in `traces/rollouts.jsonl`. Only to be read."""
    pytest.importorskip("uvicorn")
    root = tmp_path_factory.mktemp("small_run")
    model = write_toy_model(root / "model")
    (model / "config.json").write_text(json.dumps({"vocab_size": 512, "max_position_embeddings": 512}))
    (model / "model.safetensors").write_bytes(b"")
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
