"""Weights on disk, and updates that carry them with the proof that a trainer would send."""

import json
from pathlib import Path

import numpy as np
import pytest

from agar.rollout.engines.hashlm import HashLM, weights_digest
from agar.types import Probe, WeightUpdate

PROBE_IDS = np.array([5, 6, 7, 8, 9], dtype=np.int32)


@pytest.fixture
def weights(tmp_path):
    """weights("a") is a directory; equal names hold equal weights."""

    def make(name, copy=0):
        directory = tmp_path / f"{name}-{copy}"
        directory.mkdir(exist_ok=True)
        (directory / "model.safetensors").write_bytes(name.encode())
        (directory / "config.json").write_text(json.dumps({"vocab_size": 512}))
        return directory

    return make


@pytest.fixture
def update(weights):
    """update("a", 3) is version 3 with weights a, as a trainer publishes it to fake engines."""

    def make(name, version, *, copy=0, digest=None, lie_nats=0.0):
        directory = weights(name, copy)
        model = HashLM(weights=weights_digest(directory))
        return WeightUpdate(
            policy="main",
            version=version,
            transport="disk",
            payload={"directory": str(directory)},
            digest=digest or name,
            probe=Probe(token_ids=PROBE_IDS, logprobs=model.sequence_logprobs(PROBE_IDS) + np.float32(lie_nats)),
        )

    return make


@pytest.fixture(scope="session")
def engine_python():
    """Interpreter with SGLang."""
    from agar.rollout.engines.installation import engine_python as find

    found = find()
    assert found is not None, "no environment with SGLang: run `make env`, or set AGAR_ENGINE_PYTHON"
    return found


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory):
    """Two directories of a two-layer Qwen3 that differ in their weights only."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import Qwen3Config, Qwen3ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>"])
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        bos_token_id=None,
    )
    directories: list[Path] = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        directory = tmp_path_factory.mktemp(f"tiny-{seed}")
        Qwen3ForCausalLM(config).float().save_pretrained(directory)
        tokenizer.save(str(directory / "tokenizer.json"))
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
        (directory / "tokenizer_config.json").write_text(json.dumps(settings))
        directories.append(directory)
    return directories


@pytest.fixture(scope="session")
def oracle(tiny_models):
    """oracle(0, ids): Hugging Face's float32 log-probs of a sequence's own tokens under the first model."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = [AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval() for path in tiny_models]

    def logprobs(which, ids):
        row = torch.tensor([[int(i) for i in ids]])
        with torch.no_grad():
            table = torch.log_softmax(loaded[which](row).logits[0].double(), -1)
        return table[:-1].gather(1, row[0, 1:, None])[:, 0].float().numpy()

    return logprobs
