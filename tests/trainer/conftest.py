from pathlib import Path

import numpy as np
import pytest

from agar.types import Batch, GroupId, Outcome, Sample, Source

VOCAB = {True: 96, False: 97}
"""Vocabulary of the tied and the untied model; the odd one does not divide by two ranks."""


def write_model(directory: Path, *, tied: bool) -> Path:
    """A tiny Qwen3 with norms and embeddings away from their initial values."""
    import torch
    import transformers

    torch.manual_seed(3)
    config = transformers.Qwen3Config(
        vocab_size=VOCAB[tied],
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 5e4},
    )
    model = transformers.Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.2 * torch.randn_like(parameter)) if "norm" in name else parameter.mul_(4)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")
    return directory


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Directories of the untied and the tied model."""
    return {tied: write_model(tmp_path_factory.mktemp("model") / str(tied), tied=tied) for tied in (False, True)}


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
