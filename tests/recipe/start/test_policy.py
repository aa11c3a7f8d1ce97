import json
from pathlib import Path

import pytest
import torch

from agar.errors import ConfigError
from agar.recipe.start import policy


def weights(directory: Path) -> bytes:
    return (directory / "model.safetensors").read_bytes()


def edit(directory: Path, name: str, **changes: object) -> None:
    path = directory / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_policy_loads_with_transformers_and_has_half_a_million_parameters(starting_policy: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(starting_policy)
    assert 4e5 < sum(parameter.numel() for parameter in model.parameters()) < 6e5
    assert model.dtype == torch.float32
    assert model.config.eos_token_id == model.generation_config.eos_token_id == 2
    assert model.get_input_embeddings().weight.shape[0] == model.config.vocab_size == 512


def test_a_seed_fixes_the_weights(starting_policy: Path, tmp_path: Path, transcripts: list[str]) -> None:
    assert weights(policy.make(tmp_path / "again", transcripts, seed=1)) == weights(starting_policy)
    assert weights(policy.make(tmp_path / "other", transcripts, seed=2)) != weights(starting_policy)
    assert (tmp_path / "other" / "tokenizer.json").read_bytes() == (starting_policy / "tokenizer.json").read_bytes()


def test_making_a_policy_leaves_the_callers_random_state_alone(tmp_path: Path, transcripts: list[str]) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    policy.make(tmp_path / "policy", transcripts, seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_what_all_embeddings_have_in_common_is_one_row_of_the_size_asked_for(
    starting_policy: Path, tmp_path: Path, transcripts: list[str]
) -> None:
    from transformers import AutoModelForCausalLM

    config = policy.PolicyConfig(common_scale=2.0)
    made = AutoModelForCausalLM.from_pretrained(policy.make(tmp_path / "common", transcripts, seed=1, config=config))
    plain = AutoModelForCausalLM.from_pretrained(starting_policy).state_dict()
    embedding = "model.embed_tokens.weight"
    added = made.state_dict()[embedding] - plain[embedding]
    assert torch.allclose(added, added[:1].expand_as(added), atol=1e-6)
    assert float(added[0].std()) == pytest.approx(2.0 * config.initializer_range, rel=0.2)
    rest = [name for name in plain if name not in {embedding, "lm_head.weight"}]
    assert all(torch.equal(made.state_dict()[name], plain[name]) for name in rest)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("key", ["eos_token_id", "pad_token_id"])
def test_ids_that_the_tokenizer_does_not_share_are_refused(
    tmp_path: Path, transcripts: list[str], name: str, key: str
) -> None:
    directory = policy.make(tmp_path / "policy", transcripts, seed=1)
    edit(directory, name, **{key: 7})
    with pytest.raises(ConfigError, match=f"{name} has {key} 7"):
        policy.check(directory)


def test_a_vocabulary_that_the_tokenizer_does_not_fill_is_refused(tmp_path: Path, transcripts: list[str]) -> None:
    directory = policy.make(tmp_path / "policy", transcripts, seed=1)
    edit(directory, "config.json", vocab_size=640)
    with pytest.raises(ConfigError, match="vocab_size 640, the tokenizer has 512"):
        policy.check(directory)


def test_a_missing_file_is_named(tmp_path: Path, transcripts: list[str]) -> None:
    directory = policy.make(tmp_path / "policy", transcripts, seed=1)
    (directory / "generation_config.json").unlink()
    with pytest.raises(ConfigError, match=r"generation_config\.json is missing"):
        policy.check(directory)
