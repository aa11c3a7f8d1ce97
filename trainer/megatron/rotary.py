"""Rotary embedding that is told each token's position."""

from typing import Any

import torch
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding


class PositionRotary(RotaryEmbedding):  # type: ignore[misc]
    """Frequencies by position id, laid out like the packed tokens.

    Upstream applies packed rotary embeddings row by row; given one frequency per token it does so in one go, which
    matters for packs of many short rows. Without positions it behaves like its parent.
    """

    inv_freq: torch.Tensor
    positions: torch.Tensor | None = None
    """int64 [T], positions of the pack that is about to be computed, or None for plain [S, B] input."""

    def forward(
        self, max_seq_len: int, offset: int = 0, packed_seq: bool = False, cp_group: Any = None
    ) -> torch.Tensor:
        """Frequencies [T, 1, 1, D] of the packed tokens, or [max_seq_len, 1, 1, D]."""
        if self.positions is None:
            plain: torch.Tensor = super().forward(max_seq_len, offset, packed_seq, cp_group)
            return plain
        frequencies: torch.Tensor = self.inv_freq.to(self.positions.device)
        half = torch.outer(self.positions.to(frequencies.dtype), frequencies)
        return torch.cat((half, half), dim=-1)[:, None, None, :]
