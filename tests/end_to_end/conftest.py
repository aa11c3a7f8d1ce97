"""One warmed-up policy and one trained run, shared by the tests of the whole ring."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quickstart"
LIMIT_S = 420


def agar(*words: str, cwd: Path, check: bool = True, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run one command of `agar` as a user would."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "agar.cli.main", *words],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "160"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert not check or done.returncode == 0, f"agar {' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True, slots=True)
class RunOnDisk:
    """A finished run's folder and what the command printed."""

    folder: Path
    printed: str

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def steps(self) -> list[dict[str, Any]]:
        return [row for row in self.rows() if "trainer/loss" in row]

    def checkpoint(self) -> Path:
        return sorted((self.folder / "checkpoints").glob("step-*"))[-1]


def only_run(parent: Path, name: str) -> Path:
    (folder,) = parent.glob(f"{name}-*")
    return folder


def settings(values: Mapping[str, Any]) -> list[str]:
    return [word for key, value in values.items() for word in (f"--{key}", str(value))]


@pytest.fixture(scope="session")
def warm(tmp_path_factory) -> Path:
    """A policy warmed up for a few steps of SFT: enough to make well-formed turns now and then."""
    from agar.examples.quickstart.policy import make

    root = tmp_path_factory.mktemp("warm")
    start = make(root / "start", seed=1)
    words = settings(
        {"run.dir": root, "policies.main.model": start, "run.steps": 100, "policies.main.optimizer.lr": 4e-3}
    )
    agar("sft", str(EXAMPLE / "sft.toml"), *words, cwd=root)
    return RunOnDisk(only_run(root, "sft"), "").checkpoint() / "main" / "hf"


@pytest.fixture(scope="session")
def trained(tmp_path_factory, warm) -> RunOnDisk:
    """Four on-policy steps over two engines behind the router."""
    root = tmp_path_factory.mktemp("trained")
    values = {
        "run.dir": root,
        "run.steps": 4,
        "run.checkpoint_every_steps": 1,
        "policies.main.model": warm,
        "engines.count": 2,
        "rollout.tasks_per_step": 6,
        "rollout.group_size": 4,
        "evaluate.0.tasks": 16,
    }
    done = agar("train", str(EXAMPLE / "train.toml"), *settings(values), cwd=root)
    return RunOnDisk(only_run(root, "train"), done.stdout)


@pytest.fixture(scope="session")
def greedy(tmp_path_factory, trained) -> RunOnDisk:
    """What the engine says at temperature 0 with the trained policy."""
    root = tmp_path_factory.mktemp("greedy")
    values = {
        "run.dir": root,
        "policies.main.model": trained.checkpoint() / "main" / "hf",
        "evaluate.0.tasks": 6,
        "evaluate.0.sampling.temperature": 0.0,
    }
    done = agar("eval", str(EXAMPLE / "train.toml"), *settings(values), cwd=root)
    return RunOnDisk(only_run(root, "eval-train"), done.stdout)
