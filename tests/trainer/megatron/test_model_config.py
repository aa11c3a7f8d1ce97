import json
from pathlib import Path

import pytest

from agar.errors import ConfigError
from agar.trainer.config import ParallelConfig, TrainerConfig
from agar.trainer.megatron.model_config import model_to_train, read_model_config

QWEN3 = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 97,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _write(directory: Path, **changes: object) -> Path:
    (directory / "config.json").write_text(json.dumps(QWEN3 | changes))
    return directory


def test_rope_theta_is_found_in_old_and_new_configs(tmp_path):
    assert read_model_config(_write(tmp_path, rope_theta=1e6)).rope_theta == 1e6
    new = {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    assert read_model_config(_write(tmp_path, **new)).rope_theta == 5e5


def test_head_width_follows_from_the_hidden_size_where_it_is_not_given(tmp_path):
    assert read_model_config(_write(tmp_path, head_dim=None)).head_dim == 16
    assert read_model_config(_write(tmp_path)).head_dim == 32


def test_llama_3s_scaling_is_found_in_old_and_new_configs(tmp_path):
    assert read_model_config(_write(tmp_path, rope_scaling=LLAMA3, rope_theta=5e5)).rope_scaling_factor == 32
    new = read_model_config(_write(tmp_path, rope_parameters=LLAMA3 | {"rope_theta": 5e5}))
    assert (new.rope_theta, new.rope_scaling_factor) == (5e5, 32)
    assert read_model_config(_write(tmp_path)).rope_scaling_factor is None


def test_a_window_that_is_named_and_not_used_is_none(tmp_path):
    """As in the config.json of every Qwen2.5."""
    window = {"sliding_window": 32768, "use_sliding_window": False, "max_window_layers": 70}
    shape = read_model_config(_write(tmp_path, model_type="qwen2", head_dim=None, **window))
    assert (shape.traits.qkv_bias, shape.traits.qk_norm) == (True, False)


def test_vocabulary_is_padded_to_the_ranks(tmp_path):
    shape = read_model_config(_write(tmp_path))
    assert [shape.padded_vocab(size) for size in (1, 2, 4)] == [97, 98, 100]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "rotary scaling"),
        ({"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 4096}}, "rotary scaling.* 8192"),
        ({"rope_parameters": LLAMA3 | {"low_freq_factor": None}}, "rotary scaling"),
        ({"rope_parameters": LLAMA3 | {"factor": 0.5}}, "rotary scaling"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "rotary scaling"),
        ({"attention_bias": True}, "attention biases"),
        ({"mlp_bias": True}, "MLP biases"),
        ({"use_sliding_window": True}, "sliding windows"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding windows"),
        ({"hidden_act": "gelu"}, r"other than silu \(gelu\)"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised weights"),
        ({"model_type": "gpt2"}, "model_type 'gpt2'.* llama, qwen2, qwen3"),
        ({"model_type": None}, "model_type None"),
    ],
)
def test_a_part_that_is_not_built_is_refused_by_name(tmp_path, changes, part):
    with pytest.raises(ConfigError, match=part):
        read_model_config(_write(tmp_path, **changes))


def test_a_missing_directory_names_the_setting(tmp_path):
    with pytest.raises(ConfigError, match=r"point policies\.NAME\.model at"):
        read_model_config(tmp_path / "nowhere")


def test_a_model_to_train_is_refused_under_its_policys_name(tmp_path):
    config = TrainerConfig(model=_write(tmp_path, num_hidden_layers=3), parallel=ParallelConfig(tp_size=2))
    assert model_to_train(config, place="policies.main").layers == 3
    for sizes, message in (
        ({"tp_size": 4}, r"2 key/value heads .* over 4 ranks: change policies\.main\.parallel\.tp_size"),
        ({"pp_size": 2}, r"3 layers .* over 2 ranks: change policies\.main\.parallel\.pp_size"),
    ):
        with pytest.raises(ConfigError, match=message):
            model_to_train(config.model_copy(update={"parallel": ParallelConfig(**sizes)}), place="policies.main")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match=r"policies\.main\.model: .*config\.json lacks 'num_hidden_layers'"):
        model_to_train(config, place="policies.main")
