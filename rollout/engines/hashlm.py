"""HashLM: a language model whose log-probs are a hash of the weights and the whole prefix.

It stands in for a network where only bookkeeping is tested: one token too many, too few or swapped in a prefix changes
every log-prob after it, and so does any change of the weights. Its distribution is normalised, so sampling from it and
reading log-probs from it agree. Legend: V vocabulary, T tokens.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.types import Floats, Ids

_SPREAD_NATS = 4.0  # logits are uniform in [0, 4): far from flat, no token impossible


class HashLM:
    """One set of weights of the model; cheap to build.

    Example:
        >>> model = HashLM(weights="a", vocab_size=8)
        >>> bool(abs(np.exp(model.logprobs([1, 2])).sum() - 1) < 1e-6)
        True
    """

    def __init__(self, *, weights: str, vocab_size: int = 512) -> None:
        self.weights = weights
        self.vocab_size = vocab_size
        self._key = hashlib.blake2b(weights.encode(), digest_size=32).digest()

    def logprobs(self, prefix: Sequence[int] | Ids, *, temperature: float = 1.0) -> Floats:
        """Log-probs of the next token.

        Args:
            prefix: token ids so far, any length.
            temperature: divides the logits; 0 means 1, as engines report greedy sampling.

        Returns:
            float32 [V], normalised.
        """
        state = hashlib.blake2b(np.asarray(prefix, dtype="<i4").tobytes(), digest_size=8, key=self._key).digest()
        draws = np.random.PCG64(int.from_bytes(state, "little")).random_raw(self.vocab_size)
        logits = (np.asarray(draws, dtype=np.uint64) >> np.uint64(11)).astype(np.float64) * (_SPREAD_NATS / 2**53)
        logits /= temperature or 1.0
        logits -= logits.max()
        return np.asarray(logits - np.log(np.exp(logits).sum()), dtype=np.float32)

    def logprob(self, prefix: Sequence[int] | Ids, token: int, *, temperature: float = 1.0) -> float:
        """Log-prob of one token after `prefix`, in nats."""
        return float(self.logprobs(prefix, temperature=temperature)[token])

    def sequence_logprobs(self, ids: Sequence[int] | Ids) -> Floats:
        """Log-probs of a sequence's own tokens: float32 [T - 1], entry i is log p(ids[i + 1] | ids[: i + 1])."""
        return np.array([self.logprob(ids[:i], int(ids[i])) for i in range(1, len(ids))], dtype=np.float32)


def logprob(prefix: Sequence[int] | Ids, token: int, weights: str, *, vocab_size: int = 512) -> float:
    """Log-prob of `token` after `prefix` under the model with these weights, in nats."""
    return HashLM(weights=weights, vocab_size=vocab_size).logprob(prefix, token)


def weights_digest(directory: Path) -> str:
    """The weights that a directory holds, as the string that `HashLM` takes.

    Args:
        directory: its `*.safetensors` files count, or every file where there is none.

    Raises:
        FileNotFoundError: the directory is missing or empty.
    """
    files = sorted(directory.glob("*.safetensors")) or sorted(p for p in directory.glob("*") if p.is_file())
    if not files:
        raise FileNotFoundError(f"{directory} holds no weights: expected a directory with *.safetensors")
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def choose(logprobs: npt.NDArray[np.float32], uniform: float) -> int:
    """The token at quantile `uniform` in [0, 1) of a normalised distribution, float32 [V]."""
    return min(int(np.searchsorted(np.cumsum(np.exp(logprobs.astype(np.float64))), uniform)), len(logprobs) - 1)


def vocab_size(model_dir: Path | None) -> int | None:
    """Rows of the embedding table by a model's `config.json`; None where it does not say."""
    if model_dir is None or not (model_dir / "config.json").is_file():
        return None
    config: Mapping[str, Any] = json.loads((model_dir / "config.json").read_text())
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    return int(size) if size else None
