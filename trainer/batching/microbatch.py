"""A micro-batch: rows packed one after another into one sequence (`thd` layout), as numpy arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.errors import ShapeError
from agar.trainer.batching.rows import Row
from agar.types import Bools, Floats, Ids, frozen_array

_FLOATS = ("weights", "advantages", "logprobs", "reference_logprobs", "old_logprobs")
_PER_POSITION = ("token_ids", "position_ids", "segment_ids", "targets", "loss_mask", *_FLOATS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """What one forward and backward pass works on. T positions, S segments (one per row).

    Everything per position speaks about predicting `targets[t]` from position t, so nothing is left to shift. Each
    segment may end in padding (`targets` 0, not trained); attention is causal within a segment, so padding at its end
    changes nothing.

    Attributes:
        rows: sample position in the batch of each segment; -1 for the filler of a micro-batch without rows.
        token_ids: int32 [T].
        position_ids: int32 [T], 0, 1, 2, ... within each segment.
        segment_ids: int32 [T], 0 to S - 1.
        cu_seqlens: int32 [S + 1], where each segment begins and ends, padding included.
        segment_tokens: int32 [S], trained positions of each segment, also where a rank holds a part of it.
        targets: int32 [T], the next token.
        loss_mask: bool [T], True where the target is trained.
        weights: float32 [T], weight of the position's loss in the step's loss; 0 where not trained.
        advantages: float32 [T].
        logprobs: float32 [T], the engine's log-prob of the target; 0 where not sampled.
        reference_logprobs: float32 [T], the reference policy's, or None.
        old_logprobs: float32 [T], the trainer's own before the step, where it has computed them, else None.
    """

    rows: tuple[int, ...]
    token_ids: Ids
    position_ids: Ids
    segment_ids: Ids
    cu_seqlens: Ids
    segment_tokens: Ids
    targets: Ids
    loss_mask: Bools
    weights: Floats
    advantages: Floats
    logprobs: Floats
    reference_logprobs: Floats | None = None
    old_logprobs: Floats | None = None

    def __post_init__(self) -> None:
        positions, segments = len(self.token_ids), len(self.rows)
        for name in _PER_POSITION:
            array = getattr(self, name)
            if array is not None and array.shape != (positions,):
                raise ShapeError(f"MicroBatch.{name} has shape {array.shape}, expected ({positions},) like token_ids")
        if self.cu_seqlens.shape != (segments + 1,) or self.segment_tokens.shape != (segments,):
            raise ShapeError(
                f"a micro-batch of {segments} rows needs {segments + 1} cu_seqlens and {segments} segment_tokens, got "
                f"{len(self.cu_seqlens)} and {len(self.segment_tokens)}"
            )
        if int(self.cu_seqlens[-1]) != positions:
            raise ShapeError(f"cu_seqlens ends at {int(self.cu_seqlens[-1])}, expected {positions}, the packed length")

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def max_seqlen(self) -> int:
        """The longest segment, in positions, padding included."""
        return int(np.diff(self.cu_seqlens).max())

    @property
    def trained_tokens(self) -> int:
        """Positions that are trained."""
        return int(self.loss_mask.sum())

    def but(self, **changes: Any) -> "MicroBatch":
        """A copy with some fields changed, for instance `old_logprobs` once the trainer has computed them."""
        return replace(self, **changes)


def padded_length(length: int, row_multiple: int) -> int:
    """`length` rounded up to a multiple of `row_multiple`."""
    return -(-length // row_multiple) * row_multiple


def pack_rows(rows: Sequence[Row], *, row_multiple: int = 1) -> MicroBatch:
    """Lay rows one after another.

    Args:
        rows: at least one, each with at least one position.
        row_multiple: every segment is padded at its end to a multiple of this many positions; twice the context
            parallel size for a zig-zag split.

    Raises:
        ShapeError: there are no rows, or one is empty.
    """
    if not rows or any(len(row) == 0 for row in rows):
        raise ShapeError(f"a micro-batch needs rows of at least one position, got lengths {[len(row) for row in rows]}")
    lengths = [padded_length(len(row), row_multiple) for row in rows]

    def packed(name: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        pieces = [np.pad(getattr(row, name), (0, length - len(row))) for row, length in zip(rows, lengths, strict=True)]
        return frozen_array(np.concatenate(pieces), dtype, name)

    with_reference = all(row.reference_logprobs is not None for row in rows)
    return MicroBatch(
        rows=tuple(row.sample for row in rows),
        token_ids=packed("token_ids", np.int32),
        position_ids=frozen_array(np.concatenate([np.arange(length) for length in lengths]), np.int32, "position_ids"),
        segment_ids=frozen_array(np.repeat(np.arange(len(rows)), lengths), np.int32, "segment_ids"),
        cu_seqlens=frozen_array(np.concatenate([[0], np.cumsum(lengths)]), np.int32, "cu_seqlens"),
        segment_tokens=frozen_array([int(row.loss_mask.sum()) for row in rows], np.int32, "segment_tokens"),
        targets=packed("targets", np.int32),
        loss_mask=packed("loss_mask", np.bool_),
        weights=packed("weights", np.float32),
        advantages=packed("advantages", np.float32),
        logprobs=packed("logprobs", np.float32),
        reference_logprobs=packed("reference_logprobs", np.float32) if with_reference else None,
    )


def filler(*, row_multiple: int = 1, with_reference: bool = False) -> MicroBatch:
    """A micro-batch that trains nothing, for a rank that has no rows where others have some."""
    zeros = np.zeros(1)
    row = Row(
        sample=-1,
        token_ids=frozen_array(zeros, np.int32, "token_ids"),
        targets=frozen_array(zeros, np.int32, "targets"),
        loss_mask=frozen_array(zeros, np.bool_, "loss_mask"),
        weights=frozen_array(zeros, np.float32, "weights"),
        advantages=frozen_array(zeros, np.float32, "advantages"),
        logprobs=frozen_array(zeros, np.float32, "logprobs"),
        reference_logprobs=frozen_array(zeros, np.float32, "reference_logprobs") if with_reference else None,
    )
    return pack_rows([row], row_multiple=row_multiple)
