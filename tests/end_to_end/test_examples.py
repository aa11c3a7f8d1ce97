"""Every example at the size of two cores, for two updates: the policy is made, warmed up a little, and reinforced."""

import importlib
from pathlib import Path

import pytest
from tests.end_to_end.conftest import RunOnDisk, agar, only_run, settings

from agar.examples.stages import Example

pytestmark = [pytest.mark.sglang, pytest.mark.megatron, pytest.mark.ray, pytest.mark.sandbox, pytest.mark.timeout(900)]

EXAMPLES = ["coding_agent", "retool", "search_r1"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_two_updates(name: str, tmp_path: Path) -> None:
    example: Example = importlib.import_module(f"agar.examples.{name}.run").EXAMPLE
    shared = {"run.dir": tmp_path}
    start = example.start(tmp_path / "start", 1)
    agar("sft", str(example.sft), *settings({**shared, "policies.main.model": start, "run.steps": 60}), cwd=tmp_path)
    warm = RunOnDisk(only_run(tmp_path, "sft"), "").checkpoint() / "main" / "hf"
    values: dict[str, object] = {
        **shared,
        "run.steps": 2,
        "policies.main.model": warm,
        "rollout.tasks_per_step": 3,
        "rollout.group_size": 4,
        "evaluate.0.tasks": 4,
    }
    words = example.prepare(tmp_path) if example.prepare is not None else []
    done = agar("train", str(example.train), *words, *settings(values), cwd=tmp_path)
    trained = RunOnDisk(only_run(tmp_path, "tiny"), done.stdout)
    assert [row["step"] for row in trained.steps()] == [1, 2]
    for row in trained.steps():
        assert row["ledger/violations"] == 0
        assert row["trainer/engine_gap_max"] < 1e-3
