"""Core attention on torch's scaled_dot_product_attention: causal, grouped queries, packed rows.

Upstream's `DotProductAttention` refuses packed (thd) input, and the fused ones need a GPU library. This one plugs into
the layer specification and runs on any device.

Legend: T packed tokens, B rows, S longest row, N query heads, G key/value heads, D head width.
"""

from typing import Any

import torch
import torch.nn.functional as F
from megatron.core.transformer.module import MegatronModule

_WASTE = 1.5
"""A group of rows is padded together while that costs at most this many times the tokens in it."""


class SdpaAttention(MegatronModule):  # type: ignore[misc]
    """Causal attention within each row of a packed batch, or over [S, B] input without packing."""

    def __init__(self, config: Any, layer_number: int, *args: Any, softmax_scale: float | None = None, **kwargs: Any):
        super().__init__(config=config)
        self.scale = softmax_scale

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        attn_mask_type: Any = None,
        attention_bias: torch.Tensor | None = None,
        packed_seq_params: Any = None,
    ) -> torch.Tensor:
        """Attend.

        Args:
            query: [T, N, D] packed, or [S, B, N, D].
            key: [T, G, D] packed, or [S, B, G, D].
            value: like `key`.
            attention_mask: unused; attention is causal, and padding on the right cannot be seen from the left.
            attn_mask_type: unused.
            attention_bias: unused.
            packed_seq_params: `PackedRows` for packed input, else None.

        Returns:
            [T, N * D] packed, or [S, B, N * D].
        """
        if packed_seq_params is not None:
            return self._packed(query, key, value, packed_seq_params.groups)
        rows = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        return self._attend(*rows).permute(2, 0, 1, 3).flatten(2)

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """[B, N, S, D] and twice [B, G, S, D] to [B, N, S, D]."""
        repeats = query.shape[1] // key.shape[1]
        if repeats > 1:
            key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=self.scale)

    def _packed(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, groups: list["RowGroup"]
    ) -> torch.Tensor:
        pieces = []
        for group in groups:
            rows = (x[group.gather].transpose(1, 2) for x in (query, key, value))  # [B, N or G, S, D]
            out = self._attend(*rows).transpose(1, 2)  # [B, S, N, D]
            pieces.append(out.flatten(0, 1)[group.valid])
        order = torch.cat([group.tokens for group in groups])
        packed = torch.cat(pieces).flatten(1)
        return torch.empty_like(packed).index_copy(0, order, packed)


class RowGroup:
    """Rows of similar length that one call of attention takes together.

    Attributes:
        gather: int64 [B, S], index of each row's token in the pack; padding repeats the row's last token.
        valid: int64 [n], positions in the flattened [B * S] that are no padding.
        tokens: int64 [n], the packed index of each of those.
    """

    __slots__ = ("gather", "tokens", "valid")

    def __init__(self, starts: torch.Tensor, lengths: torch.Tensor) -> None:
        longest = int(lengths.max())
        steps = torch.arange(longest, device=starts.device)
        real = steps[None] < lengths[:, None]
        self.gather = starts[:, None] + torch.minimum(steps[None], lengths[:, None] - 1)
        self.valid = real.flatten().nonzero().squeeze(1)
        self.tokens = self.gather.flatten()[self.valid]


def group_rows(cu_seqlens: torch.Tensor) -> list[RowGroup]:
    """Split packed rows into groups that are cheap to pad.

    Args:
        cu_seqlens: int64 [B + 1], where each row starts; the last entry is the number of tokens.

    Returns:
        Groups that cover every row once.
    """
    lengths = cu_seqlens.diff()
    order = torch.argsort(lengths)
    groups: list[RowGroup] = []
    start, total = 0, 0
    for end, length in enumerate(lengths[order].tolist()):
        if end > start and length * (end - start + 1) > _WASTE * (total + length):
            chosen = order[start:end]
            groups.append(RowGroup(cu_seqlens[chosen], lengths[chosen]))
            start, total = end, 0
        total += length
    chosen = order[start:]
    groups.append(RowGroup(cu_seqlens[chosen], lengths[chosen]))
    return groups
