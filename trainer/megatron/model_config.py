"""What a Hugging Face config.json says about the model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agar.errors import ConfigError
from agar.trainer.config import TrainerConfig

ANY_POLICY = "policies.NAME"
"""The table of a policy whose name is not known where a message is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What tells the layers of one model type from those of the others.

    Attributes:
        qkv_bias: the projections of queries, keys and values have biases.
        qk_norm: queries and keys are normalised.
    """

    qkv_bias: bool = False
    qk_norm: bool = False


MODEL_TYPES: Mapping[str, Traits] = {
    "llama": Traits(),
    "qwen2": Traits(qkv_bias=True),
    "qwen3": Traits(qk_norm=True),
}
"""The model types that can be trained, by Hugging Face's name; Qwen2.5 is of type qwen2."""

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Rotary scaling of Llama 3.1 to 3.3, as it is written into Megatron-core, which takes any factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of a dense decoder, read from a Hugging Face config.json.

    Attributes:
        model_type: Hugging Face's name of the family, one of `MODEL_TYPES`.
        layers: transformer layers.
        hidden: width of the residual stream.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of one head.
        ffn: width of the gated MLP.
        vocab: rows of the embedding.
        max_positions: longest sequence that the model was made for.
        rope_theta: base of the rotary frequencies.
        norm_eps: epsilon of the RMS norms.
        tied: whether the output layer is the embedding.
        rope_scaling_factor: by which Llama 3's scaling divides the low rotary frequencies; None: it is not used.
    """

    model_type: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int
    rope_theta: float
    norm_eps: float
    tied: bool
    rope_scaling_factor: float | None = None

    @property
    def traits(self) -> Traits:
        """What its model type brings."""
        return MODEL_TYPES[self.model_type]

    def padded_vocab(self, tp_size: int) -> int:
        """The vocabulary, rounded up so that every tensor parallel rank holds equally many rows."""
        return -(-self.vocab // tp_size) * tp_size

    def check_split(self, tp_size: int, pp_size: int, *, place: str = ANY_POLICY) -> None:
        """Refuse parallel sizes that do not divide the model.

        Args:
            tp_size: tensor parallel ranks.
            pp_size: pipeline stages.
            place: the policy's table, for the message.

        Raises:
            ConfigError: names the part and the sizes.
        """
        for name, whole, key, parts in (
            ("attention heads", self.heads, "tp_size", tp_size),
            ("key/value heads", self.kv_heads, "tp_size", tp_size),
            ("units of MLP width", self.ffn, "tp_size", tp_size),
            ("layers", self.layers, "pp_size", pp_size),
        ):
            if whole % parts:
                raise ConfigError(
                    f"{whole} {name} cannot be split over {parts} ranks: change {place}.parallel.{key} to a divisor"
                )


def model_to_train(config: TrainerConfig, *, place: str) -> ModelConfig:
    """The shape of the model that a trainer is to train, from its config.json alone: nothing heavy is loaded.

    Args:
        config: the trainer's settings.
        place: the policy's table, for the message.

    Raises:
        ConfigError: there is no such file, or the model cannot be trained or split as configured.
    """
    shape = read_model_config(config.model, place=place)
    shape.check_split(config.parallel.tp_size, config.parallel.pp_size, place=place)
    return shape


def read_model_config(directory: Path, *, place: str = ANY_POLICY) -> ModelConfig:
    """Read `directory/config.json`.

    Args:
        directory: a Hugging Face directory.
        place: the policy's table, for the message.

    Raises:
        ConfigError: there is no such file, or the model has a part that is not built here.
    """
    path = directory / "config.json"
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}): point {place}.model at a Hugging Face directory"
        ) from error
    _refuse_unsupported(raw, f"{place}.model: {path}")
    rope = _rope(raw)
    try:
        return ModelConfig(
            model_type=raw["model_type"],
            layers=raw["num_hidden_layers"],
            hidden=raw["hidden_size"],
            heads=raw["num_attention_heads"],
            kv_heads=raw.get("num_key_value_heads") or raw["num_attention_heads"],
            head_dim=raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
            ffn=raw["intermediate_size"],
            vocab=raw["vocab_size"],
            max_positions=raw.get("max_position_embeddings", 32768),
            rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            norm_eps=raw.get("rms_norm_eps", 1e-6),
            tied=bool(raw.get("tie_word_embeddings", False)),
            rope_scaling_factor=float(rope["factor"]) if _rope_type(rope) == "llama3" else None,
        )
    except KeyError as error:
        raise ConfigError(
            f"{place}.model: {path} lacks {error}: expected the config of a causal language model"
        ) from error


def _rope(raw: dict[str, Any]) -> dict[str, Any]:
    """The rotary settings, under their new or their old name."""
    return raw.get("rope_parameters") or raw.get("rope_scaling") or {}


def _rope_type(rope: dict[str, Any]) -> str:
    return str(rope.get("rope_type", rope.get("type", "default")))


def _rope_is_built(rope: dict[str, Any]) -> bool:
    if rope.get("partial_rotary_factor") not in (None, 1.0):
        return False
    if _rope_type(rope) == "llama3":
        factor = rope.get("factor")
        known = all(rope.get(key) == value for key, value in _LLAMA3.items())
        return known and isinstance(factor, int | float) and factor >= 1
    return _rope_type(rope) == "default"


def _refuse_unsupported(raw: dict[str, Any], found: str) -> None:
    model_type = raw.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ConfigError(
            f"{found} is of model_type {model_type!r}, which this trainer does not build: choose a model of one of the "
            f"types {', '.join(sorted(MODEL_TYPES))}"
        )
    rope = _rope(raw)
    activation = raw.get("hidden_act", "silu")
    windows = raw.get("use_sliding_window") or set(raw.get("layer_types") or ()) - {"full_attention"}
    refused = {
        f"rotary scaling {json.dumps(rope)}, other than llama3 with {json.dumps(_LLAMA3)}": not _rope_is_built(rope),
        "attention biases (attention_bias)": bool(raw.get("attention_bias")),
        "MLP biases (mlp_bias)": bool(raw.get("mlp_bias")),
        "sliding windows (use_sliding_window, layer_types)": bool(windows),
        f"an activation other than silu ({activation})": activation != "silu",
        "quantised weights (quantization_config)": bool(raw.get("quantization_config")),
    }
    for part, present in refused.items():
        if present:
            raise ConfigError(f"{found} asks for {part}, which this trainer does not build: choose another model")
