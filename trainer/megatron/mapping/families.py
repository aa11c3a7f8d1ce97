"""Mapping tables of the model families that are built here, and the choice between them."""

from collections.abc import Callable, Mapping

from agar.errors import ConfigError
from agar.trainer.megatron.mapping.layouts import GatedRows, GroupedQkv, Replicated, Sliced, VocabRows
from agar.trainer.megatron.mapping.rules import Rule, WeightMapping
from agar.trainer.megatron.model_config import ModelConfig

_DENSE = (
    Rule("embedding.word_embeddings.weight", ("model.embed_tokens.weight",), VocabRows()),
    Rule("decoder.final_layernorm.weight", ("model.norm.weight",), Replicated()),
    Rule(
        "decoder.layers.{layer}.self_attention.linear_qkv.weight",
        (
            "model.layers.{layer}.self_attn.q_proj.weight",
            "model.layers.{layer}.self_attn.k_proj.weight",
            "model.layers.{layer}.self_attn.v_proj.weight",
        ),
        GroupedQkv(),
    ),
    Rule(
        "decoder.layers.{layer}.self_attention.linear_proj.weight",
        ("model.layers.{layer}.self_attn.o_proj.weight",),
        Sliced(1),
    ),
    Rule(
        "decoder.layers.{layer}.mlp.linear_fc1.weight",
        ("model.layers.{layer}.mlp.gate_proj.weight", "model.layers.{layer}.mlp.up_proj.weight"),
        GatedRows(),
    ),
    Rule("decoder.layers.{layer}.mlp.linear_fc2.weight", ("model.layers.{layer}.mlp.down_proj.weight",), Sliced(1)),
    Rule(
        "decoder.layers.{layer}.input_layernorm.weight", ("model.layers.{layer}.input_layernorm.weight",), Replicated()
    ),
    Rule(
        "decoder.layers.{layer}.pre_mlp_layernorm.weight",
        ("model.layers.{layer}.post_attention_layernorm.weight",),
        Replicated(),
    ),
)

_QK_NORMS = (
    Rule(
        "decoder.layers.{layer}.self_attention.q_layernorm.weight",
        ("model.layers.{layer}.self_attn.q_norm.weight",),
        Replicated(),
    ),
    Rule(
        "decoder.layers.{layer}.self_attention.k_layernorm.weight",
        ("model.layers.{layer}.self_attn.k_norm.weight",),
        Replicated(),
    ),
)


def _output(model: ModelConfig) -> tuple[Rule, ...]:
    # A tied output layer lives on the last pipeline stage as a copy of the embedding.
    source = "model.embed_tokens.weight" if model.tied else "lm_head.weight"
    return (Rule("output_layer.weight", (source,), VocabRows()),)


def llama(model: ModelConfig) -> tuple[Rule, ...]:
    """Llama: dense, no biases, no query and key norms."""
    return (*_DENSE, *_output(model))


def qwen3(model: ModelConfig) -> tuple[Rule, ...]:
    """Qwen3, dense: like Llama, with a norm on queries and keys."""
    return (*_DENSE, *_QK_NORMS, *_output(model))


FAMILIES: Mapping[str, Callable[[ModelConfig], tuple[Rule, ...]]] = {"llama": llama, "qwen3": qwen3}
"""Mapping tables by Hugging Face model type."""


def mapping_for(model: ModelConfig) -> WeightMapping:
    """The weight mapping of a model.

    Raises:
        ConfigError: no table for its model type.
    """
    table = FAMILIES.get(model.model_type)
    if table is None:
        raise ConfigError(
            f"no weight mapping for model_type {model.model_type!r}: there are tables for {', '.join(sorted(FAMILIES))}"
        )
    return WeightMapping(table(model), model)
