"""Texts to vectors, by a local model."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.errors import ConfigError, MissingExtraError, to_install
from agar.tool_servers.search.config import EmbedderConfig
from agar.tool_servers.text import sendable

Vectors = npt.NDArray[np.float32]
"""float32 [n, dimension], each row of length 1."""


class Embedder:
    """A model of the BERT kind from a Hugging Face folder.

    Args:
        config: the folder, and how the model wants its texts.

    Raises:
        ConfigError: the folder holds no such model, or it cannot run on the device.
        MissingExtraError: torch or transformers is not installed.
    """

    def __init__(self, config: EmbedderConfig) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise MissingExtraError(f"embedding texts needs {error.name}: {to_install('trainer')}") from error
        self._config, self._torch = config, torch
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(config.model, local_files_only=True)
            self._model: Any = transformers.AutoModel.from_pretrained(config.model, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{config.model} holds no embedding model ({error}): name its folder") from error
        try:
            self._model.eval().to(config.device)
        except (RuntimeError, AssertionError) as error:  # a torch without CUDA asserts that it has it
            raise ConfigError(
                f"{config.model} cannot run on {config.device!r} ({error}): name another device"
            ) from error

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self._model.config.hidden_size)

    def queries(self, texts: Sequence[str]) -> Vectors:
        """The vectors of queries."""
        return self._embed([self._config.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Vectors:
        """The vectors of passages."""
        return self._embed([self._config.passage_prefix + text for text in texts])

    def _embed(self, texts: Sequence[str]) -> Vectors:
        size = self._config.texts_per_batch
        return np.concatenate([self._batch(texts[at : at + size]) for at in range(0, len(texts), size)])

    def _batch(self, texts: Sequence[str]) -> Vectors:
        torch = self._torch
        inputs = self._tokenizer(
            [sendable(text) for text in texts],
            padding=True,
            truncation=True,
            max_length=self._config.max_tokens,
            return_tensors="pt",
        ).to(self._config.device)
        with torch.inference_mode():
            last = self._model(**inputs).last_hidden_state.float()
            if self._config.pooling == "first":
                pooled = last[:, 0]
            else:
                real = inputs["attention_mask"].unsqueeze(-1).float()
                pooled = (last * real).sum(dim=1) / real.sum(dim=1).clamp(min=1.0)
            vectors = torch.nn.functional.normalize(pooled, dim=-1)
        return np.ascontiguousarray(vectors.cpu().numpy(), dtype=np.float32)
