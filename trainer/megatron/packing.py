"""Packed rows as Megatron's layers want them."""

from dataclasses import dataclass, field

import torch
from megatron.core.packed_seq_params import PackedSeqParams

from agar.trainer.megatron.attention import RowGroup, group_rows


@dataclass
class PackedRows(PackedSeqParams):  # type: ignore[misc]
    """Megatron's packed-sequence parameters, with the row groups that `SdpaAttention` computes in."""

    groups: list[RowGroup] = field(default_factory=list)


def packed_rows(cu_seqlens: torch.Tensor) -> PackedRows:
    """Describe a pack.

    Args:
        cu_seqlens: int [B + 1], row boundaries, first 0, last T.

    Returns:
        Parameters whose rotary length is T, so that frequencies are laid out token by token.
    """
    bounds = cu_seqlens.to(torch.int32)
    total = int(bounds[-1])
    return PackedRows(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        max_seqlen_q=total,
        max_seqlen_kv=total,
        groups=group_rows(cu_seqlens.to(torch.int64)),
    )
