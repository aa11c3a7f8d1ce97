"""From a micro-batch's numpy arrays to the tensors of the losses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agar.trainer.algorithms.inputs import LossInputs
from agar.trainer.batching.microbatch import MicroBatch


def loss_inputs(
    microbatch: MicroBatch, *, device: torch.device | str = "cpu", positions: npt.NDArray[np.intp] | None = None
) -> LossInputs:
    """Copy what the losses need to a device.

    Args:
        microbatch: the micro-batch.
        device: where to.
        positions: the positions that this rank holds, in its order (context parallelism); None for all. Row totals
            (`segment_tokens`) stay those of whole rows.

    Returns:
        Tensors over those positions.
    """

    def local(array: npt.NDArray[Any]) -> Tensor:
        chosen = array if positions is None else array[positions]
        return torch.tensor(chosen, device=device)  # a copy: the arrays are read-only

    return LossInputs(
        loss_mask=local(microbatch.loss_mask),
        weights=local(microbatch.weights),
        advantages=local(microbatch.advantages),
        engine_logprobs=local(microbatch.logprobs),
        segment_ids=local(microbatch.segment_ids).long(),
        segment_tokens=torch.tensor(microbatch.segment_tokens, device=device, dtype=torch.float32),
        old_logprobs=None if microbatch.old_logprobs is None else local(microbatch.old_logprobs),
        reference_logprobs=None if microbatch.reference_logprobs is None else local(microbatch.reference_logprobs),
    )
