import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agar.errors import EngineError

_QWEN25 = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
}
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-3B-Instruct": _QWEN25
    | {
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "sliding_window": 32768,
        "max_window_layers": 70,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-7B-Instruct": _QWEN25
    | {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "sliding_window": 131072,
        "max_window_layers": 28,
        "tie_word_embeddings": False,
    },
    "Qwen3-8B": {
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_position_embeddings": 40960,
        "max_window_layers": 36,
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
}
"""What stands in the config.json of the models that the recipes for GPUs name, as far as it tells their shape."""


@pytest.fixture
def named_model(tmp_path: Path) -> Callable[[Path], Path]:
    """Writes the folder of the model that a recipe names, without weights."""

    def write(recipe: Path) -> Path:
        named = tomllib.loads(recipe.read_text())["policies"]["main"]["model"]
        folder = tmp_path / Path(named).name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(SHAPES[folder.name]))
        (folder / "tokenizer.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"")
        return folder

    return write


class Stages:
    """Stands for `agar sft` and `agar train`: takes down what they were asked for, and says how they ended."""

    def __init__(self, folder: Path, *, stop_at: str = "", fail_at: str = "") -> None:
        self.folder, self.stop_at, self.fail_at = folder, stop_at, fail_at
        self.asked: list[tuple[str, Path, list[str]]] = []

    def __call__(self, command: str, recipe: Path, overrides: list[str]) -> Any:
        self.asked.append((command, recipe, list(overrides)))
        if command == self.fail_at:
            raise EngineError("the engine did not start: read its log")
        (self.folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "rollout/reward_mean": 0.5}) + "\n")
        return SimpleNamespace(
            stopped=command == self.stop_at,
            checkpoint=SimpleNamespace(path=self.folder / command),
            before=[SimpleNamespace(reward_mean=0.25, standard_error=0.04)],
            after=[SimpleNamespace(reward_mean=0.95, standard_error=0.02)],
            folder=SimpleNamespace(
                path=self.folder, metrics=self.folder / "metrics.jsonl", picture=self.folder / "reward.png"
            ),
        )


@pytest.fixture
def use_stages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Stages]:
    """Put a `Stages` in the place of the commands."""

    def use(**how: str) -> Stages:
        stages = Stages(tmp_path, **how)
        monkeypatch.setattr("agar.examples.stages.stage", stages)
        return stages

    return use
