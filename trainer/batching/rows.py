"""Training rows: a sample with its advantage and its token weights, shifted to next-token form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agar.errors import ShapeError
from agar.types import Bools, Floats, Ids, Sample, frozen_array

REFERENCE_LOGPROBS = "reference_logprobs"
"""`Sample.side` key: the reference policy's log-probs, float [T], aligned to `token_ids`."""
LOSS_WEIGHTS = "loss_weights"
"""`Sample.side` key: a factor >= 0 on each token's loss weight, float [T], aligned to `token_ids`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """One sample in next-token form: entry t is about predicting `targets[t]` from `token_ids[: t + 1]`.

    A sample of T tokens gives a row of n = T - 1 positions: its last token is only ever a target, its first one never.

    Example: tokens [1, 2, 7, 8], `loss_mask` [0, 0, 1, 1]: `token_ids` [1, 2, 7], `targets` [2, 7, 8], `loss_mask`
    [0, 1, 1].

    Attributes:
        sample: position of the sample in the batch.
        token_ids: int32 [n], what the model reads.
        targets: int32 [n], the token after each.
        loss_mask: bool [n], True where the target is trained.
        weights: float32 [n], the target's weight in the step's loss; 0 where not trained.
        advantages: float32 [n], 0 where not trained.
        logprobs: float32 [n], the engine's log-prob of the target; 0 where not sampled.
        reference_logprobs: float32 [n], the reference policy's, or None.
    """

    sample: int
    token_ids: Ids
    targets: Ids
    loss_mask: Bools
    weights: Floats
    advantages: Floats
    logprobs: Floats
    reference_logprobs: Floats | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


def trained_load(sample: Sample) -> npt.NDArray[np.float64]:
    """How much each position of a sample's row counts before reduction: its mask times its loss weights.

    Returns:
        float64 [T - 1], aligned to the predicted token; empty for a sample of fewer than two tokens.

    Raises:
        ShapeError: `side["loss_weights"]` does not match the tokens.
    """
    load = sample.loss_mask[1:].astype(np.float64)
    factors = _side(sample, LOSS_WEIGHTS)
    return load if factors is None else load * factors[1:].astype(np.float64)


def make_rows(
    samples: Sequence[Sample],
    *,
    advantages: Sequence[Floats],
    weights: Mapping[int, Floats],
) -> list[Row]:
    """Build the rows of some samples.

    Args:
        samples: the batch.
        advantages: per sample of the batch float32 [T], aligned to `token_ids`.
        weights: by sample position float32 [T - 1], aligned to the predicted token; the samples it names become rows,
            each of at least two tokens.

    Returns:
        Rows in the order of `weights`.

    Raises:
        ShapeError: some samples have reference log-probs and others none, or a side array does not match its tokens.
    """
    references = {position: _side(samples[position], REFERENCE_LOGPROBS) for position in weights}
    missing = [position for position, array in references.items() if array is None]
    if missing and len(missing) < len(references):
        raise ShapeError(
            f'side["{REFERENCE_LOGPROBS}"] must be on every sample of a batch or on none, but {len(missing)} of '
            f"{len(references)} lack it (the first is sample {missing[0]}): recompute it for the whole batch"
        )
    return [
        _row(samples[position], position, advantages[position], weights[position], references[position])
        for position in weights
    ]


def _row(sample: Sample, position: int, advantage: Floats, weight: Floats, reference: Floats | None) -> Row:
    mask = sample.loss_mask[1:] & (weight > 0)
    return Row(
        sample=position,
        token_ids=frozen_array(sample.token_ids[:-1], np.int32, "token_ids"),
        targets=frozen_array(sample.token_ids[1:], np.int32, "targets"),
        loss_mask=frozen_array(mask, np.bool_, "loss_mask"),
        weights=frozen_array(np.where(mask, weight, 0), np.float32, "weights"),
        advantages=frozen_array(np.where(mask, advantage[1:], 0), np.float32, "advantages"),
        logprobs=frozen_array(sample.logprobs[1:], np.float32, "logprobs"),
        reference_logprobs=None if reference is None else frozen_array(reference[1:], np.float32, REFERENCE_LOGPROBS),
    )


def _side(sample: Sample, name: str) -> npt.NDArray[np.float32] | None:
    if name not in sample.side:
        return None
    array = np.asarray(sample.side[name], dtype=np.float32)
    if array.shape != sample.token_ids.shape or not np.isfinite(array).all():
        raise ShapeError(
            f'side["{name}"] of trajectory {sample.trajectory!r} must be finite with shape {sample.token_ids.shape}, '
            f"got shape {array.shape}"
        )
    return array
