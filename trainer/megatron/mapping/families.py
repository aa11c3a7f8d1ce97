"""Mapping tables of the model families that are built here: what all share, and what a family adds."""

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

_QKV_BIASES = (
    Rule(
        "decoder.layers.{layer}.self_attention.linear_qkv.bias",
        (
            "model.layers.{layer}.self_attn.q_proj.bias",
            "model.layers.{layer}.self_attn.k_proj.bias",
            "model.layers.{layer}.self_attn.v_proj.bias",
        ),
        GroupedQkv(),
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


def mapping_for(model: ModelConfig) -> WeightMapping:
    """The weight mapping of a model."""
    traits = model.traits
    biases = _QKV_BIASES if traits.qkv_bias else ()
    norms = _QK_NORMS if traits.qk_norm else ()
    return WeightMapping((*_DENSE, *biases, *norms, *_output(model)), model)
