"""The layers of the architecture hold."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_imports_point_one_way() -> None:
    program = Path(sys.executable).parent / "lint-imports"
    answer = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=55)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_rollout_and_trainer_stand_beside_each_other_and_every_room_has_a_layer() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [contract] = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    assert "rollout | trainer" in contract["layers"]
    assert contract["exhaustive"] is True
