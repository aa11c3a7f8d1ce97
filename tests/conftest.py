"""Sections of the test suite, and how long hypothesis searches.

Every test belongs to exactly one section, found from its folder and its markers, so that `tests/run.py` can time them
one by one: `pytest --section=sandbox` runs that section alone. (With `=`, since `docs` after a blank would be taken for
the folder of that name before this option is known.)
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SECTIONS = ("fast", "sandbox", "clients", "engines", "trainer", "end-to-end", "docs")

# Shared cores make single examples slow now and then: time limits belong to whole tests.
settings.register_profile("default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("verify", settings.get_profile("default"), max_examples=5000, print_blob=True)
settings.load_profile("default")


def section_of(item: pytest.Item) -> str:
    """The section that a test belongs to."""
    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    marks = {mark.name for mark in item.iter_markers()}
    if folder in {"docs", "examples"}:
        return "docs"
    if "clients" in marks:
        return "clients"
    if folder == "end_to_end" or ("sglang" in marks and marks & {"megatron", "ray"}):
        return "end-to-end"
    if "sglang" in marks:
        return "engines"
    if marks & {"megatron", "ray"}:
        return "trainer"
    return "sandbox" if "sandbox" in marks else "fast"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--section`."""
    parser.addoption("--section", choices=SECTIONS, help="run the tests of one section only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the wanted section."""
    wanted = config.getoption("--section")
    if wanted is None:
        return
    others = [item for item in items if section_of(item) != wanted]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if section_of(item) == wanted]


MODEL_CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 512,
    "max_position_embeddings": 512,
}
"""The config.json of a model that a recipe's checks take as one that can be trained."""


@pytest.fixture(scope="session")
def write_servable_model() -> Callable[[Path], Path]:
    """Writes the folder of a model without weights: all that a recipe with the fake engine asks of one."""
    from agar.ledger.toy import write_toy_model

    def write(folder: Path) -> Path:
        model = write_toy_model(folder)
        (model / "config.json").write_text(json.dumps(MODEL_CONFIG))
        (model / "model.safetensors").write_bytes(b"")
        return model

    return write
