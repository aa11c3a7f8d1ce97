"""The starting policy: a Qwen3 of half a million parameters with its own tokenizer, made on the spot.

The folder it writes loads with `transformers`, with SGLang and with the trainer, as any Hugging Face model does. Its
weights are random: it knows nothing until it is warmed up on demonstrations.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from agar.config import BaseConfig
from agar.errors import ConfigError
from agar.ledger.families.chatml import TEMPLATE
from agar.recipe.start import tokenizer as tokenizers


class PolicyConfig(BaseConfig):
    """Shape of the starting policy."""

    hidden_size: int = Field(128, ge=32, multiple_of=32)
    """Width of the residual stream."""
    layers: int = Field(2, ge=2)
    """Transformer blocks; copying what was read needs two."""
    heads: int = Field(4, ge=2, multiple_of=2)
    """Attention heads; half as many key and value heads."""
    initializer_range: float = Field(0.06, gt=0.0, le=1.0)
    """Standard deviation of the random weights. At this width 0.02, the habit of large models, takes four times as
    many steps until copying is learnt."""
    common_scale: float = Field(0.0, ge=0.0, le=10.0)
    """Standard deviation, as a multiple of `initializer_range`, of one random row that is added to every embedding.
    With 1.0, heads that look at a place whatever stands there are learnt in half the steps: rotary positions need a
    part that all tokens have. In the output layer, which is tied, what all rows have in common changes nothing."""
    rope_theta: float = Field(100.0, gt=1.0)
    """Base of the rotary positions. Episodes are short: with the usual 10,000, which tells positions thousands of
    tokens apart, some seeds take three times as many steps until both digits of a number are copied."""
    ffn_size: int = Field(384, ge=32)
    """Width of the gated feed-forward layer."""
    context_tokens: int = Field(2048, ge=128)
    """Longest context, in tokens."""
    vocab_size: int = Field(tokenizers.VOCAB_SIZE, ge=448, multiple_of=64)
    """Ids of the tokenizer, and rows of the embedding."""


def make(
    directory: Path,
    texts: Iterable[str],
    *,
    seed: int = 1,
    config: PolicyConfig | None = None,
    names: Collection[str] = (),
) -> Path:
    """Write a randomly initialised policy with its tokenizer and chat template.

    Args:
        directory: made if missing; files of an earlier call are replaced.
        texts: what the tokenizer is trained on: rendered transcripts, control tokens included.
        seed: seed of the weights; the tokenizer does not depend on it.
        config: the shape; half a million parameters by default.
        names: what has one id of its own wherever it stands between backticks.

    Returns:
        `directory`.

    Raises:
        ConfigError: the vocabulary is too small, or tokenizer and model disagree (`check`).
    """
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    config = config or PolicyConfig()
    tokenizer = tokenizers.build(texts, vocab_size=config.vocab_size, names=names)
    end, pad = tokenizer.token_to_id(tokenizers.END_OF_TURN), tokenizer.token_to_id(tokenizers.PAD)
    shape = Qwen3Config(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.ffn_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads // 2,
        head_dim=config.hidden_size // config.heads,
        max_position_embeddings=config.context_tokens,
        initializer_range=config.initializer_range,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(shape)
        if config.common_scale:
            common = config.common_scale * config.initializer_range * torch.randn(config.hidden_size)
            model.model.embed_tokens.weight.data += common
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, bos_token_id=None, eos_token_id=end, pad_token_id=pad
    )
    with _without_progress_bar():
        model.save_pretrained(directory)
    tokenizers.save(tokenizer, directory, template=TEMPLATE, context_tokens=config.context_tokens)
    check(directory)
    return directory


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    """Writing two megabytes needs no bar."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def check(directory: Path) -> None:
    """Make sure that a policy's tokenizer and its two configurations name the same ids.

    A tokenizer that is rebuilt can move the end-of-turn id. A model whose configuration keeps the old one stops after
    one token, or never; nothing else fails, and nothing learns.

    Raises:
        ConfigError: a file is missing, or an id differs; the message names both values.
    """
    try:
        vocab = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
        model = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        generation = json.loads((directory / "generation_config.json").read_text(encoding="utf-8"))
        names = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename} is missing: make the policy again in {directory}") from error
    ids = {**vocab["model"]["vocab"], **{token["content"]: token["id"] for token in vocab["added_tokens"]}}
    end, pad = ids.get(names["eos_token"]), ids.get(names["pad_token"])
    for file, found in (("config.json", model), ("generation_config.json", generation)):
        for key, expected in (("eos_token_id", end), ("pad_token_id", pad)):
            if found.get(key) != expected:
                raise ConfigError(
                    f"{file} has {key} {found.get(key)}, the tokenizer has {expected}: "
                    f"they are made together; make the policy again in {directory}"
                )
    if model["vocab_size"] != len(ids):
        raise ConfigError(
            f"config.json has vocab_size {model['vocab_size']}, the tokenizer has {len(ids)} ids: "
            f"make the policy again in {directory}"
        )
