from pathlib import Path

import numpy as np
import pytest

from agar.types import Batch, GroupId, Outcome, Sample, Source

VOCAB = {True: 96, False: 97}
"""Vocabulary of the tied and the untied model; the odd one does not divide by two ranks."""
MODEL_TYPES = ("llama", "qwen2", "qwen3")


def write_model(directory: Path, *, model_type: str, tied: bool) -> Path:
    """A tiny model with norms, biases and embeddings away from their initial values."""
    import torch
    import transformers

    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(
        model_type,
        vocab_size=VOCAB[tied],
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 5e4},
        **({"head_dim": 16} if model_type == "qwen3" else {}),  # elsewhere the hidden size gives it: 8
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter)) if parameter.ndim == 1 else parameter.mul_(4)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")
    return directory


@pytest.fixture(scope="session")
def models_by_type(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[bool, Path]]:
    """Directories of the untied and the tied model of each type."""
    return {
        model_type: {
            tied: write_model(tmp_path_factory.mktemp(model_type) / str(tied), model_type=model_type, tied=tied)
            for tied in (False, True)
        }
        for model_type in MODEL_TYPES
    }


@pytest.fixture(scope="session")
def models(models_by_type: dict[str, dict[bool, Path]]) -> dict[bool, Path]:
    """Directories of the untied and the tied Qwen3, for what does not depend on the type."""
    return models_by_type["qwen3"]


@pytest.fixture(params=MODEL_TYPES)
def each(request: pytest.FixtureRequest, models_by_type: dict[str, dict[bool, Path]]) -> dict[bool, Path]:
    """Directories of the untied and the tied model of one type after the other."""
    return models_by_type[request.param]


def make_sample(
    position: int, rng: np.random.Generator, *, vocab: int, source: Source, logprob: float = -4.0
) -> Sample:
    length = int(rng.integers(4, 24))
    mask = np.arange(length) >= rng.integers(1, length - 1)
    mask[length // 2] |= True
    trained = np.where(mask, int(source), 0)
    sampled = trained == Source.SAMPLED
    return Sample(
        policy="policy",
        group=GroupId(task=f"task {position // 2}", ordinal=0),
        role="agent",
        trajectory=f"trajectory {position}",
        token_ids=rng.integers(0, vocab, length).astype(np.int32),
        loss_mask=mask,
        source=trained,
        logprobs=np.where(sampled, logprob + 0.3 * rng.standard_normal(length), 0).clip(max=-0.1) * sampled,
        policy_versions=np.where(sampled, 0, -1),
        rewards=np.zeros(length, np.float32),
        reward=float(position % 2),
        weight=1.0,
        outcome=Outcome.COMPLETED,
    )


def make_batch(*, vocab: int, source: Source = Source.SAMPLED, rows: int = 10, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch(samples=tuple(make_sample(i, rng, vocab=vocab, source=source) for i in range(rows)))


@pytest.fixture(scope="session")
def batches() -> dict[tuple[bool, Source], Batch]:
    """Batches by (tied model, source of the trained tokens)."""
    return {
        (tied, source): make_batch(vocab=VOCAB[tied], source=source)
        for tied in (False, True)
        for source in (Source.SAMPLED, Source.DEMONSTRATION)
    }
