"""The starting policy's tokenizer: a byte-level BPE of 512 ids, trained on transcripts of the environment.

Any text round-trips, since every byte has an id. Digits are never merged, so numbers are copied digit by digit. A name
between backticks is spelt with the same tokens wherever it stands, so that it can be copied too; `names` are one token
each. Everything else may merge, across spaces and newlines too, until the constant pieces of a conversation (the system
block, the opening of a tool call) are one token each. That keeps an episode below a hundred tokens, which is what lets
two cores play thousands of them.
"""

import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from agar.errors import ConfigError
from agar.ledger.families.chatml import SPECIAL_TOKENS

VOCAB_SIZE = 512
"""Ids in the tokenizer, and rows in the model's embedding: equal, so that every id a model can sample has a text."""
PAD = "<|endoftext|>"
"""Padding, and the end of a document."""
END_OF_TURN = "<|im_end|>"
"""Ends every message; the id at which generation stops."""
ADDED: tuple[str, ...] = SPECIAL_TOKENS
"""The chat family's control tokens and tags, one id each, in the family's order."""
CONTROL: tuple[str, ...] = (PAD, "<|im_start|>", END_OF_TURN)
"""Those that decoding may leave out; the tags among `ADDED` belong to the visible text."""
_QUOTED = r"`[^`\s]+`"
_REPLY = "assistant\n"
"""Ends every prompt: what the model samples starts behind it, so no token may reach across."""


def build(texts: Iterable[str], *, vocab_size: int = VOCAB_SIZE, names: Collection[str] = ()) -> Tokenizer:
    """Train the tokenizer.

    Args:
        texts: rendered transcripts, special tokens and all.
        vocab_size: ids in all. What training leaves free is filled with reserved tokens.
        names: what has one id of its own wherever it stands between backticks, which belong to it.

    Returns:
        A tokenizer of exactly `vocab_size` ids: `ADDED` first, then the bytes and the merges.

    Raises:
        ConfigError: `vocab_size` is too small for the bytes and the special tokens, or there is no text.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    smallest = len(ADDED) + len(alphabet) + len(names)
    if vocab_size < smallest:
        raise ConfigError(f"vocab_size must be at least {smallest} (bytes, special tokens and names), got {vocab_size}")
    pieces = [piece for text in texts for piece in _runs(text)]
    if names:  # they have ids already; what is left of the vocabulary is for the rest
        pieces = [part for piece in pieces for part in re.split(_QUOTED, piece) if part]
    if not pieces:
        raise ConfigError("the tokenizer needs at least one transcript to train on, got none")
    tokenizer = _untrained(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(names),
        special_tokens=list(ADDED),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces, trainer)
    return _finished(tokenizer, vocab_size, names)


def bytes_only() -> Tokenizer:
    """A tokenizer without a merge: one id per byte and per added token. It renders the transcripts to train on."""
    vocab = {token: index for index, token in enumerate([*ADDED, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    tokenizer = _untrained(models.BPE(vocab=vocab, merges=[]))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in ADDED])
    return tokenizer


def save(tokenizer: Tokenizer, directory: Path, *, template: str, context_tokens: int) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` for `transformers.AutoTokenizer`.

    Args:
        tokenizer: what `build` returned.
        directory: made if missing.
        template: the chat template (jinja).
        context_tokens: the model's longest context.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_tokens,
        "eos_token": END_OF_TURN,
        "pad_token": PAD,
        "bos_token": None,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (directory / "chat_template.jinja").write_text(template, encoding="utf-8")


def _untrained(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QUOTED), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _runs(text: str) -> list[str]:
    """The runs of plain text between control tokens: what the tokenizer will meet, hence what it trains on."""
    runs = [text]
    for token in ADDED:
        runs = [part for run in runs for part in run.split(token)]
    return [part for run in runs for part in _at_reply(run) if part]


def _at_reply(run: str) -> tuple[str, str]:
    return (_REPLY, run.removeprefix(_REPLY)) if run.startswith(_REPLY) else (run, "")


def _finished(tokenizer: Tokenizer, vocab_size: int, names: Collection[str]) -> Tokenizer:
    """Add the names, mark tags as visible text, and fill up to `vocab_size`."""
    state = json.loads(tokenizer.to_str())
    state["model"]["ignore_merges"] = True  # a quoted name that has an id is that, whatever it could be merged from
    for token in state["added_tokens"]:
        token["special"] = token["content"] in CONTROL
    vocab = state["model"]["vocab"]
    for name in names:
        [(quoted, _)] = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(f"`{name}`")
        vocab.setdefault(quoted, len(vocab))
    for number in range(vocab_size - len(vocab)):
        vocab[f"<|reserved_{number}|>"] = len(vocab)
    return Tokenizer.from_str(json.dumps(state))


__all__ = ["ADDED", "CONTROL", "END_OF_TURN", "PAD", "VOCAB_SIZE", "build", "bytes_only", "save"]
