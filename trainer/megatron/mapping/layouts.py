"""How one Megatron parameter is laid out: from Hugging Face tensors, into tensor parallel shards, and back.

A layout is four small functions that are inverse in pairs: `merge` / `split` between Hugging Face tensors and the whole
Megatron tensor, `shard` / `unshard` between the whole and its tensor parallel parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from agar.trainer.megatron.model_config import ModelConfig

Tensors = tuple[torch.Tensor, ...]


class Layout(Protocol):
    """One kind of parameter."""

    def merge(self, parts: Tensors, model: ModelConfig) -> torch.Tensor:
        """Hugging Face tensors to the whole Megatron tensor."""
        ...

    def split(self, whole: torch.Tensor, model: ModelConfig) -> Tensors:
        """The whole Megatron tensor to Hugging Face tensors."""
        ...

    def shard(self, whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
        """The part of one tensor parallel rank."""
        ...

    def unshard(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """All parts, in rank order, to the whole."""
        ...


class _Single:
    """One Hugging Face tensor, unchanged."""

    def merge(self, parts: Tensors, model: ModelConfig) -> torch.Tensor:
        (whole,) = parts
        return whole

    def split(self, whole: torch.Tensor, model: ModelConfig) -> Tensors:
        return (whole,)


class Replicated(_Single):
    """Every rank holds the whole tensor."""

    def shard(self, whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
        """The whole tensor."""
        return whole

    def unshard(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """Any one of them."""
        return shards[0]


@dataclass(frozen=True, slots=True)
class Sliced(_Single):
    """Ranks hold consecutive slices along `dim`."""

    dim: int

    def shard(self, whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
        """Slice `rank` of `size`."""
        return whole.chunk(size, self.dim)[rank]

    def unshard(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """Joined slices."""
        return torch.cat(tuple(shards), self.dim)


class VocabRows(Sliced):
    """Rows of the vocabulary, padded with zeros so that ranks hold equally many."""

    def __init__(self) -> None:
        super().__init__(0)

    def shard(self, whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
        """Slice `rank` of the padded rows."""
        missing = -len(whole) % size
        if missing:
            whole = torch.cat((whole, whole.new_zeros(missing, *whole.shape[1:])))
        return whole.chunk(size)[rank]

    def split(self, whole: torch.Tensor, model: ModelConfig) -> Tensors:
        """The rows without padding."""
        return (whole[: model.vocab],)


class GroupedQkv(Sliced):
    """Query, key and value projections, interleaved by key/value head: q..q k v, q..q k v, ..."""

    def __init__(self) -> None:
        super().__init__(0)

    def merge(self, parts: Tensors, model: ModelConfig) -> torch.Tensor:
        """Query [heads * D, H], key and value [kv_heads * D, H] to one tensor; biases are the same without H."""
        groups = tuple(p.view(model.kv_heads, -1, *p.shape[1:]) for p in parts)
        return torch.cat(groups, 1).flatten(0, 1)

    def split(self, whole: torch.Tensor, model: ModelConfig) -> Tensors:
        """Back to q, k, v."""
        per_group = model.heads // model.kv_heads * model.head_dim
        grouped = whole.view(model.kv_heads, -1, *whole.shape[1:])
        parts = torch.split(grouped, [per_group, model.head_dim, model.head_dim], 1)
        return tuple(part.flatten(0, 1) for part in parts)


class GatedRows:
    """Gate and up projections of a gated MLP: every rank holds its slice of the gate, then its slice of the other."""

    def merge(self, parts: Tensors, model: ModelConfig) -> torch.Tensor:
        """Gate above up."""
        return torch.cat(parts)

    def split(self, whole: torch.Tensor, model: ModelConfig) -> Tensors:
        """Back to gate and up."""
        return whole.chunk(2)

    def shard(self, whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
        """Slice `rank` of both halves."""
        return torch.cat(tuple(half.chunk(size)[rank] for half in whole.chunk(2)))

    def unshard(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """All gate slices, then all up slices."""
        halves = [shard.chunk(2) for shard in shards]
        return torch.cat([gate for gate, _ in halves] + [up for _, up in halves])
