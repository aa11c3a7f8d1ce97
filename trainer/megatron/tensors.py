"""A micro-batch on the device: numpy in, tensors out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agar.trainer.algorithms.inputs import LossInputs
from agar.trainer.batching.microbatch import MicroBatch
from agar.trainer.batching.tensors import loss_inputs
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

    def integers(array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(device)

    at = np.flatnonzero(microbatch.loss_mask)
    if not len(at):
        at = np.zeros(1, np.int64)
    return DeviceBatch(
        token_ids=integers(microbatch.token_ids),
        position_ids=integers(microbatch.position_ids),
        rows=packed_rows(integers(microbatch.cu_seqlens)),
        at=integers(at),
        targets=integers(microbatch.targets[at]),
        inputs=loss_inputs(microbatch, device=device),
    )
