"""What a loss needs to know about a micro-batch, as tensors, and sums over its segments. T positions, S segments."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]
"""Adds a tensor up over the ranks that hold parts of the same rows (context parallelism). Never differentiated."""


def whole_rows(partial_S: Tensor) -> Tensor:
    """The `Reduce` of a rank that holds whole rows: nothing to add."""
    return partial_S


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossInputs:
    """Per-position tensors, aligned to the predicted token.

    Attributes:
        loss_mask: bool [T], True where the target is trained.
        weights: float32 [T], weight in the step's loss; 0 where not trained.
        advantages: float32 [T].
        engine_logprobs: float32 [T], log-prob of the target by the engine that sampled it.
        segment_ids: int64 [T], the row of each position, 0 to S - 1.
        segment_tokens: float32 [S], trained tokens of each whole row.
        old_logprobs: float32 [T], the trainer's own before the step, or None.
        reference_logprobs: float32 [T], the reference policy's, or None.
    """

    loss_mask: Tensor
    weights: Tensor
    advantages: Tensor
    engine_logprobs: Tensor
    segment_ids: Tensor
    segment_tokens: Tensor
    old_logprobs: Tensor | None = None
    reference_logprobs: Tensor | None = None

    def masked(self, values_T: Tensor) -> Tensor:
        """The values where trained, 0 elsewhere, whatever stood there (also for the gradient)."""
        return torch.where(self.loss_mask, values_T, torch.zeros_like(values_T))

    def segment_sum(self, values_T: Tensor, reduce: Reduce) -> Tensor:
        """Sum over each row's trained tokens: [S], without gradient."""
        partial = values_T.new_zeros(len(self.segment_tokens))
        return reduce(partial.index_add(0, self.segment_ids, self.masked(values_T.detach())))

    def segment_mean(self, values_T: Tensor, reduce: Reduce) -> Tensor:
        """Mean over each row's trained tokens: [S], without gradient; 0 for a row without any."""
        return self.segment_sum(values_T, reduce) / self.segment_tokens.clamp(min=1)
