"""Small real parts for tests, examples and documentation: a tokenizer trained on the spot, and an oracle engine."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from agar.ledger.families.chatml import SPECIAL_TOKENS, TEMPLATE
from agar.types import Finish, Floats, Ids, Sampled, Sampling

_CORPUS = (
    "system user assistant tool name description parameters type object properties string integer required",
    '{"name":"sh","description":"Run a command.","parameters":{"type":"object",'
    '"properties":{"command":{"type":"string"}},"required":["command"]}}',
    '{"name":"sh","arguments":{"command":"cat 47"}} box 83 gold 29 Start at 47. The answer is 29.',
    "The quick brown fox looks around, thinks a little, reads the file and says what it has found there.",
)


def write_toy_model(directory: str | Path, *, vocabulary_size: int = 512) -> Path:
    """Write a model directory without weights: a byte-level BPE trained on a few lines, and the ChatML template.

    Returns:
        The directory, ready for `family_for`.
    """
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    new_trainer: Any = trainers.BpeTrainer
    trainer = new_trainer(
        vocab_size=vocabulary_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.save(str(root / "tokenizer.json"))
    (root / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (root / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return root


def hash_logprobs(prompt: Ids, reply: Sequence[int] | Ids) -> Floats:
    """Log-probs of an imaginary model: each is a hash of the whole prefix and the token, in [-8, 0).

    Any change to a prefix changes every later number, so a record with a wrong prefix shows.

    Returns:
        float32 [len(reply)].
    """
    state = hashlib.blake2b(np.asarray(prompt, dtype="<i4").tobytes(), digest_size=8)
    numbers = []
    for token in np.asarray(reply, dtype="<i4"):
        state.update(token.tobytes())
        numbers.append(-8.0 * (int.from_bytes(state.digest(), "little") + 1) / 2.0**64)
    return np.array(numbers, dtype=np.float32)


class ToyEngine:
    """An in-process `Engine` that says what it is told and prices it with `hash_logprobs`.

    Args:
        reply: prompt ids to reply ids, stop token included; a reply longer than `sampling.max_tokens` is cut and
            finishes with LENGTH.
        version: policy version stamped on the tokens; may be changed between calls.

    Attributes:
        prompts: every prompt seen, in order.
    """

    def __init__(self, reply: Callable[[Ids], Sequence[int] | Ids], *, version: int = 0) -> None:
        self._reply = reply
        self.version = version
        self.prompts: list[Ids] = []

    async def generate(self, ids: Ids, sampling: Sampling, *, routing_key: str) -> Sampled:
        """See `Engine.generate`."""
        del routing_key
        self.prompts.append(ids)
        whole = np.asarray(self._reply(ids), dtype=np.int32)
        reply = whole[: sampling.max_tokens]
        rows = [[float(p), int(t), None] for p, t in zip(hash_logprobs(ids, reply), reply, strict=True)]
        finish = Finish.STOP if len(reply) == len(whole) else Finish.LENGTH
        meta = {"output_token_logprobs": rows, "weight_version": self.version, "finish_reason": {"type": finish.value}}
        return Sampled.from_generate({"meta_info": meta})
