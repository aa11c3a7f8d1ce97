"""Correction of the gap between the trainer's log-probs and the engine's.

The tokens were drawn from the engine's distribution; the trainer computes a slightly different one for the same
weights, and a clearly different one for newer weights. Each token's policy loss is multiplied by a constant weight
made of w = trainer / engine, bounded or removed. Denominators stay those of the whole batch: a removed token lowers the
batch's weight, it does not raise the others'.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from agar.trainer.algorithms.config import IcepopConfig, Level, MisConfig, TisConfig
from agar.trainer.algorithms.inputs import LossInputs, Reduce, whole_rows
from agar.trainer.algorithms.kl import safe_exp


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    level: Level
    mode: Literal["mask", "truncate", "clip"]
    low: float
    high: float
    veto: float | None


def correction_weights(
    inputs: LossInputs,
    old_logprobs_T: Tensor,
    config: TisConfig | MisConfig | IcepopConfig,
    *,
    reduce: Reduce = whole_rows,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The factor on each token's policy loss.

    With d = old - engine at a token: level `token` takes w = e^d, `sequence` e^(sum of d over the row), `geometric`
    e^(mean of d over the row). `tis` clamps w to [low, high]; `icepop` keeps w inside and gives 0 outside, per token;
    `mis` does either (`clip`, `mask`) or caps from above (`truncate`), and `veto` removes rows with a token below it.

    Args:
        inputs: the micro-batch.
        old_logprobs_T: [T], the trainer's log-probs before the step.
        config: the correction.
        reduce: adds row sums up over context parallel ranks.

    Returns:
        weights [T] without gradient, 1 where not trained; and sums over trained tokens: `correction_weight_sum`,
        `correction_bounded_sum` (weight changed, not removed), `correction_removed_sum`.

    Source: TIS F. Yao et al. (2025), MIS J. Liu et al. "When speed kills stability" (2025), IcePop arXiv:2510.18855.
    """
    rule = _rule(config)
    gap = inputs.masked(old_logprobs_T.detach() - inputs.engine_logprobs)
    if rule.level == "sequence":
        raw = safe_exp(inputs.segment_sum(gap, reduce))[inputs.segment_ids]
    elif rule.level == "geometric":
        raw = safe_exp(inputs.segment_mean(gap, reduce))[inputs.segment_ids]
    else:
        raw = safe_exp(gap)
    bounded = raw.clamp(rule.low if rule.mode != "truncate" else None, rule.high)
    weights = torch.where(bounded == raw, raw, torch.zeros_like(raw)) if rule.mode == "mask" else bounded
    if rule.veto is not None:
        catastrophes = inputs.segment_sum((safe_exp(gap) < rule.veto).to(gap.dtype), reduce)
        weights = torch.where(catastrophes[inputs.segment_ids] > 0, torch.zeros_like(weights), weights)
    removed = weights == 0
    return torch.where(inputs.loss_mask, weights, torch.ones_like(weights)), {
        "correction_weight_sum": inputs.masked(weights).sum(),
        "correction_bounded_sum": inputs.masked(((bounded != raw) & ~removed).to(gap.dtype)).sum(),
        "correction_removed_sum": inputs.masked(removed.to(gap.dtype)).sum(),
    }


def _rule(config: TisConfig | MisConfig | IcepopConfig) -> _Rule:
    if isinstance(config, MisConfig):
        return _Rule(level=config.level, mode=config.mode, low=config.low, high=config.high, veto=config.veto)
    if isinstance(config, IcepopConfig):
        return _Rule(level="token", mode="mask", low=config.low, high=config.high, veto=None)
    return _Rule(level=config.level, mode="clip", low=config.low, high=config.high, veto=None)
