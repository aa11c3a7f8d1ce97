"""From a batch of samples to the micro-batches of one optimiser step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agar.errors import ShapeError
from agar.trainer.algorithms.advantages import advantages
from agar.trainer.algorithms.config import PolicyGradientConfig
from agar.trainer.algorithms.reductions import token_weights
from agar.trainer.algorithms.trajectories import collect, key_of
from agar.trainer.batching.microbatch import MicroBatch, filler, pack_rows, padded_length
from agar.trainer.batching.pack import distribute, pack
from agar.trainer.batching.report import batch_metrics, packing_metrics
from agar.trainer.batching.rows import REFERENCE_LOGPROBS, Row, make_rows, trained_load
from agar.types import Floats, Metrics, Sample, Source

LossKind = Literal["policy", "sft"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepPlan:
    """The work of one optimiser step.

    The step's loss is the sum, over all ranks and micro-batches, of weight x token loss: gradients are summed over
    micro-batches and over data and context parallel ranks, never averaged.

    Attributes:
        loss: which loss the micro-batches are for.
        microbatches: per data parallel rank its micro-batches, equally many on each; none where nothing is trained.
        trajectories: trajectories that are trained.
        trained_tokens: positions that are trained, over all ranks.
        metrics: what was packed and what was left out, with reasons.
    """

    loss: LossKind
    microbatches: tuple[tuple[MicroBatch, ...], ...]
    trajectories: int
    trained_tokens: int
    metrics: Metrics

    @property
    def dp_size(self) -> int:
        """Data parallel ranks that the step was planned for."""
        return len(self.microbatches)

    @property
    def microbatches_per_rank(self) -> int:
        """Micro-batches on each rank; 0 where nothing can be trained."""
        return len(self.microbatches[0])


def plan_step(
    samples: Sequence[Sample],
    *,
    algorithm: PolicyGradientConfig,
    tokens_per_microbatch: int,
    dp_size: int = 1,
    loss: LossKind = "policy",
    row_multiple: int = 1,
) -> StepPlan:
    """Plan one optimiser step over a batch.

    Samples whose outcome does not train, and samples without a trained token, are left out and counted.

    Args:
        samples: the batch of one policy, whole groups.
        algorithm: gives advantages and reduction; for `sft` only its reduction is used.
        tokens_per_microbatch: budget of a micro-batch, in positions after padding; a longer row gets its own.
        dp_size: data parallel ranks.
        loss: `policy` or `sft`.
        row_multiple: pads every row to a multiple of this many positions (context parallelism).

    Returns:
        A plan; with no micro-batches on any rank if no sample can be trained.

    Raises:
        ShapeError: samples of several policies, inconsistent trajectories or side arrays, a trained token that no
            engine sampled in a policy batch, or no reference log-probs though `kl_coef` is above 0.
    """
    _check(samples, algorithm, loss)
    trajectories = collect(samples)
    reasons = [_drop_reason(sample) for sample in samples]
    kept = [position for position, reason in enumerate(reasons) if reason is None]
    weights = token_weights(
        [trained_load(samples[position]) for position in kept],
        [key_of(samples[position]) for position in kept],
        reduction=algorithm.reduction,
        constant_tokens=algorithm.constant_tokens,
    )
    values = advantages(samples, algorithm) if loss == "policy" else [_zeros(sample) for sample in samples]
    rows = make_rows(samples, advantages=values, weights=dict(zip(kept, weights, strict=True)))
    microbatches = _pack_and_distribute(rows, tokens_per_microbatch, dp_size, row_multiple)
    return StepPlan(
        loss=loss,
        microbatches=microbatches,
        trajectories=len({key_of(samples[position]) for position in kept}),
        trained_tokens=sum(int(row.loss_mask.sum()) for row in rows),
        metrics={
            **batch_metrics(list(trajectories.values()), rows),
            **packing_metrics(microbatches, tokens_per_microbatch),
            **_drops(samples, reasons),
        },
    )


def _pack_and_distribute(
    rows: Sequence[Row], budget: int, ranks: int, row_multiple: int
) -> tuple[tuple[MicroBatch, ...], ...]:
    lengths = [padded_length(len(row), row_multiple) for row in rows]
    shares = distribute(pack(lengths, budget=budget), lengths, ranks=ranks)
    with_reference = any(row.reference_logprobs is not None for row in rows)
    empty = filler(row_multiple=row_multiple, with_reference=with_reference)
    return tuple(
        tuple(pack_rows([rows[i] for i in b], row_multiple=row_multiple) if b else empty for b in share)
        for share in shares
    )


def _zeros(sample: Sample) -> Floats:
    return np.zeros(len(sample.token_ids), np.float32)


def _drop_reason(sample: Sample) -> str | None:
    """Why a sample is not trained, or None."""
    if not sample.outcome.trainable:
        return sample.outcome.value
    return None if trained_load(sample).sum() > 0 else "no_trained_token"


def _drops(samples: Sequence[Sample], reasons: Sequence[str | None]) -> Mapping[str, float]:
    """What was left out, by reason; a trained first token has no prefix to be predicted from."""
    counted = Counter(reason for reason in reasons if reason is not None)
    first = sum(bool(sample.loss_mask[:1].any()) for sample, why in zip(samples, reasons, strict=True) if why is None)
    return {
        "trainer/dropped_first_tokens": float(first),
        **{f"trainer/dropped_samples_{reason}": float(count) for reason, count in sorted(counted.items())},
    }


def _check(samples: Sequence[Sample], algorithm: PolicyGradientConfig, loss: LossKind) -> None:
    policies = sorted({sample.policy for sample in samples})
    if len(policies) > 1:
        raise ShapeError(f"a step trains one policy, got samples of {policies}: use Batch.of(policy)")
    if loss == "sft":
        return
    for position, sample in enumerate(samples):
        foreign = sample.loss_mask & (sample.source != Source.SAMPLED)
        if foreign.any():
            token = int(np.flatnonzero(foreign)[0])
            raise ShapeError(
                f"sample {position} trains token {token}, which no engine sampled (source "
                f'{Source(int(sample.source[token])).name}): mask it, or train demonstrations with loss = "sft"'
            )
        if algorithm.kl_coef > 0 and REFERENCE_LOGPROBS not in sample.side:
            raise ShapeError(
                f'kl_coef is {algorithm.kl_coef}, but sample {position} has no side["{REFERENCE_LOGPROBS}"]: compute '
                "the reference policy's log-probs first, or set kl_coef = 0"
            )
