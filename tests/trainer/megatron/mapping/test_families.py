import pytest

from agar.errors import TrainerError
from agar.trainer.megatron.mapping.families import mapping_for
from agar.trainer.megatron.mapping.rules import global_name
from agar.trainer.megatron.model_config import ModelConfig, read_model_config


@pytest.mark.megatron
@pytest.mark.parametrize("tied", [False, True])
def test_the_table_names_exactly_the_tensors_of_hugging_faces_model(each, tied):
    import transformers

    with_names = transformers.AutoModelForCausalLM.from_pretrained(each[tied])
    assert mapping_for(read_model_config(each[tied])).hugging_face_names() == {
        name for name, _ in with_names.named_parameters()
    }


def _shape(model_type: str) -> ModelConfig:
    return ModelConfig(
        model_type=model_type,
        layers=1,
        hidden=8,
        heads=2,
        kv_heads=1,
        head_dim=4,
        ffn=8,
        vocab=10,
        max_positions=16,
        rope_theta=1e4,
        norm_eps=1e-6,
        tied=False,
    )


def test_a_parameter_without_a_rule_is_named():
    with pytest.raises(TrainerError, match="q_layernorm"):
        mapping_for(_shape("llama")).of("decoder.layers.0.self_attention.q_layernorm.weight")


def test_layers_of_a_later_stage_are_counted_from_the_start_of_the_model():
    assert global_name("module.decoder.layers.1.mlp.linear_fc2.weight", first_layer=4) == (
        "decoder.layers.5.mlp.linear_fc2.weight"
    )
    assert global_name("output_layer.weight", first_layer=4) == "output_layer.weight"
