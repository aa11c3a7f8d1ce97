"""A Megatron model from a Hugging Face shape."""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig

from agar.trainer.megatron.attention import SdpaAttention
from agar.trainer.megatron.model_config import ModelConfig
from agar.trainer.megatron.norm import RmsNorm
from agar.trainer.megatron.packing import PackedRows
from agar.trainer.megatron.rotary import PositionRotary


def transformer_config(
    shape: ModelConfig, *, dtype: torch.dtype, tp_size: int = 1, pp_size: int = 1, recompute: bool = False
) -> TransformerConfig:
    """Megatron's own settings for this shape.

    Fusions stay off: they need a GPU library, and their numbers differ from the engines'.

    Raises:
        ConfigError: the parallel sizes do not divide the model.
    """
    shape.check_split(tp_size, pp_size)
    recomputation: dict[str, Any] = (
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1} if recompute else {}
    )
    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_query_groups=shape.kv_heads,
        kv_channels=shape.head_dim,
        ffn_hidden_size=shape.ffn,
        normalization="RMSNorm",
        layernorm_epsilon=shape.norm_eps,
        qk_layernorm=shape.traits.qk_norm,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        add_qkv_bias=shape.traits.qkv_bias,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        tensor_model_parallel_size=tp_size,
        pipeline_model_parallel_size=pp_size,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        # Packs differ in length, so pipeline stages tell each other the shape.
        variable_seq_lengths=pp_size > 1,
        moe_token_dispatcher_type="alltoall",  # unused here, but upstream refuses its own default with varying lengths
        batch_p2p_comm=False,
        use_cpu_initialization=not torch.cuda.is_available(),
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        cross_entropy_loss_fusion=False,
        **recomputation,
    )


class PolicyModel(GPTModel):  # type: ignore[misc]
    """One pipeline stage of a decoder that is scored at chosen positions only."""

    def __init__(self, shape: ModelConfig, config: TransformerConfig) -> None:
        spec = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=config.qk_layernorm)
        layer = spec.submodules
        layer.input_layernorm = layer.pre_mlp_layernorm = RmsNorm
        attention = layer.self_attention.submodules
        attention.core_attention = SdpaAttention
        if config.qk_layernorm:
            attention.q_layernorm = attention.k_layernorm = RmsNorm
        super().__init__(
            config,
            spec,
            vocab_size=shape.padded_vocab(config.tensor_model_parallel_size),
            max_sequence_length=shape.max_positions,
            pre_process=parallel_state.is_pipeline_first_stage(),
            post_process=parallel_state.is_pipeline_last_stage(),
            position_embedding_type="rope",
            rotary_base=shape.rope_theta,
            share_embeddings_and_output_weights=shape.tied,
        )
        self.shape = shape
        self.rotary_pos_emb = PositionRotary(
            kv_channels=shape.head_dim,
            rotary_percent=1.0,
            rotary_base=shape.rope_theta,
            rope_scaling=shape.rope_scaling_factor is not None,
            rope_scaling_factor=shape.rope_scaling_factor or 1.0,
            use_cpu_initialization=config.use_cpu_initialization,
            cp_group=self.pg_collection.cp,
        )

    def score(
        self, token_ids: torch.Tensor, position_ids: torch.Tensor, rows: PackedRows, at: torch.Tensor
    ) -> torch.Tensor:
        """Run the stage over a pack.

        Args:
            token_ids: int64 [T].
            position_ids: int64 [T], restarting at 0 in every row.
            rows: where the rows are.
            at: int64 [K], packed positions whose next-token logits are wanted; the output layer sees no other.

        Returns:
            [K, V] logits of this rank's vocabulary rows on the last stage, else the hidden states [T, 1, H].
        """
        self.rotary_pos_emb.positions = position_ids
        out: torch.Tensor = self(
            token_ids[None],
            position_ids[None],
            None,
            packed_seq_params=rows,
            output_processor=_logits_at,
            output_processor_context=at,
        )
        return out


def _logits_at(
    *, hidden_states: torch.Tensor, output_layer: Any, output_weight: Any, context: torch.Tensor, **_: Any
) -> torch.Tensor:
    logits: torch.Tensor = output_layer(hidden_states[context], weight=output_weight)[0]
    return logits[:, 0]
