"""A micro-batch on the device: numpy in, tensors out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agar.trainer.algorithms.inputs import LossInputs
from agar.trainer.batching.microbatch import MicroBatch
from agar.trainer.megatron.packing import PackedRows, packed_rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceBatch:
    """What a stage computes on. T packed positions, K of them trained.

    Attributes:
        token_ids: int64 [T].
        position_ids: int64 [T].
        rows: row boundaries.
        at: int64 [K], the trained positions; one untrained position where a micro-batch trains nothing, so that every
            rank and stage runs the same graph.
        targets: int64 [K], their next tokens.
        inputs: what the loss needs, per packed position.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    rows: PackedRows
    at: torch.Tensor
    targets: torch.Tensor
    inputs: LossInputs

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """Values [K] at the scored positions to [T], 0 elsewhere."""
        return values.new_zeros(len(self.token_ids)).index_copy(0, self.at, values)


def to_device(microbatch: MicroBatch, device: torch.device) -> DeviceBatch:
    """Move a micro-batch to the device."""

    def tensor(array: npt.NDArray[Any] | None, dtype: npt.DTypeLike) -> Any:
        # A copy: micro-batches are read-only, and torch refuses to know about that.
        return None if array is None else torch.from_numpy(np.array(array, dtype=dtype)).to(device)

    at = np.flatnonzero(microbatch.loss_mask)
    if not len(at):
        at = np.zeros(1, np.int64)
    return DeviceBatch(
        token_ids=tensor(microbatch.token_ids, np.int64),
        position_ids=tensor(microbatch.position_ids, np.int64),
        rows=packed_rows(tensor(microbatch.cu_seqlens, np.int64)),
        at=tensor(at, np.int64),
        targets=tensor(microbatch.targets[at], np.int64),
        inputs=LossInputs(
            loss_mask=tensor(microbatch.loss_mask, np.bool_),
            weights=tensor(microbatch.weights, np.float32),
            advantages=tensor(microbatch.advantages, np.float32),
            engine_logprobs=tensor(microbatch.logprobs, np.float32),
            segment_ids=tensor(microbatch.segment_ids, np.int64),
            segment_tokens=tensor(microbatch.segment_tokens, np.float32),
            old_logprobs=tensor(microbatch.old_logprobs, np.float32),
            reference_logprobs=tensor(microbatch.reference_logprobs, np.float32),
        ),
    )
