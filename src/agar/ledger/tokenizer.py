"""The tokenizer as the ledger needs it: text is never read as a control token unless the caller says so."""

import json
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import tokenizers

from agar.errors import ConfigError, LedgerError
from agar.types import Ids

_CACHED_TEXTS = 512
_CACHED_CHARACTERS = 16_384


class Tokenizer:
    """A `tokenizer.json` without transformers.

    Two encoders share one vocabulary: the one for text knows no added tokens, so that `<|im_end|>` inside a web page
    or a tool's output is ordinary characters and can never act as a control token.

    Attributes:
        added: added tokens (control tokens, tool and reasoning marks) by their text.
        byte_level: whether every token stands for bytes of its own, so that a text may be decoded piece by piece.
    """

    __slots__ = ("_bytes", "_cached", "_control", "_text", "_whole", "added", "byte_level", "vocabulary_size")

    def __init__(self, definition: str) -> None:
        """Build both encoders.

        Args:
            definition: the text of a `tokenizer.json`.

        Raises:
            ConfigError: it is not a tokenizer definition.
        """
        try:
            spec = json.loads(definition)
            self._whole = tokenizers.Tokenizer.from_str(definition)
            self._text = tokenizers.Tokenizer.from_str(json.dumps({**spec, "added_tokens": [], "post_processor": None}))
        except Exception as error:  # tokenizers raises bare Exception
            raise ConfigError(f"not a tokenizer definition ({error}): expected the text of a tokenizer.json") from error
        for encoder in (self._whole, self._text):
            encoder.no_truncation()
            encoder.no_padding()
        self.added: Mapping[str, int] = {t["content"]: int(t["id"]) for t in spec.get("added_tokens", [])}
        self.byte_level: bool = (spec.get("decoder") or {}).get("type") == "ByteLevel"
        self._bytes = _TokenBytes(self._whole)
        self._control = frozenset(self.added.values())
        self.vocabulary_size: int = self._whole.get_vocab_size(with_added_tokens=True)
        self._cached = lru_cache(_CACHED_TEXTS)(self._encode_text)

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """Read `tokenizer.json` from a model directory.

        Raises:
            ConfigError: there is none, or it cannot be read.
        """
        path = Path(directory) / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"no tokenizer.json in {directory}: point model at a Hugging Face directory with one")
        return cls(path.read_text("utf-8"))

    def encode(self, text: str, *, special: bool = False) -> Ids:
        """Encode text; added tokens are ordinary characters unless `special`.

        Returns:
            int32 [n].

        Raises:
            LedgerError: the text gave a control token although they are disabled, or is not valid Unicode.
        """
        if special:
            return np.asarray(self._whole.encode(text, add_special_tokens=False).ids, dtype=np.int32)
        return np.array(self.ids_of(text), dtype=np.int32)

    def ids_of(self, text: str) -> Sequence[int]:
        """The ids of `encode(text)`, from the cache of recent texts; not to be changed."""
        return self._cached(text) if len(text) <= _CACHED_CHARACTERS else self._encode_text(text)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of the ids, control tokens included as their text."""
        values = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if self.byte_level:  # the same in a third of the time: the library looks every token up by its text
            return b"".join(map(self._bytes.__getitem__, values)).decode("utf-8", "replace")
        return str(self._whole.decode(values, skip_special_tokens=False))

    def bytes_of(self, id: int) -> bytes:
        """The bytes of a token of a byte-level tokenizer; none for an id that stands for nothing."""
        return self._bytes[id]

    def _encode_text(self, text: str) -> Sequence[int]:
        try:
            ids = array("i", self._text.encode(text, add_special_tokens=False).ids)  # a tenth of a tuple's memory
        except (UnicodeError, TypeError) as error:
            raise LedgerError(
                f"text of {len(text)} characters cannot be encoded ({error}): send valid Unicode"
            ) from error
        if not self._control.isdisjoint(ids):
            raise LedgerError(
                "text was encoded to a control token although they are disabled: the tokenizer's own model holds it "
                "as an ordinary merge; give it another pre-tokenizer"
            )
        return ids


class _TokenBytes(dict[int, bytes]):
    """The bytes of every token that was asked for."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, id: int) -> bytes:
        token = self._tokenizer.id_to_token(id) or ""
        numbers = [_BYTES.get(character) for character in token]
        self[id] = token.encode() if None in numbers else bytes(n for n in numbers if n is not None)
        return self[id]


def _byte_names() -> dict[str, int]:
    """How byte-level tokens spell bytes (GPT-2's table).

    The printable ones of Latin-1 stand as themselves, the others, in order, from U+0100 on.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


_BYTES = _byte_names()
