"""Losses of one micro-batch: token losses times the weights that were fixed for the whole batch.

Every function takes log-probs of the targets and returns a scalar that adds up over micro-batches and ranks, and sums
that add up likewise. Sums named `*_sum` run over trained tokens: divided by `tokens` they are means (`mean_metrics`);
the others are parts of the loss as they stand.
"""

import torch
from torch import Tensor

from agar.errors import ShapeError
from agar.trainer.algorithms.config import PolicyGradientConfig
from agar.trainer.algorithms.corrections import correction_weights
from agar.trainer.algorithms.inputs import LossInputs, Reduce, whole_rows
from agar.trainer.algorithms.kl import kl_estimate, safe_exp
from agar.trainer.algorithms.metrics import mean_metrics as mean_metrics

Sums = dict[str, Tensor]
"""Scalar tensors without gradient, by name; add them up over micro-batches, data and context parallel ranks."""


def policy_loss(
    inputs: LossInputs,
    logprobs_T: Tensor,
    entropies_T: Tensor | None,
    config: PolicyGradientConfig,
    *,
    reduce: Reduce = whole_rows,
) -> tuple[Tensor, Sums]:
    """The policy-gradient loss of a micro-batch.

    Token loss: correction x surrogate(ratio, advantage) + kl_coef x KL - entropy_coef x entropy.

    Args:
        inputs: the micro-batch.
        logprobs_T: [T] with gradient, log-prob of each target under the current policy; any finite value where not
            trained.
        entropies_T: [T] with gradient, entropy of the distribution over the target in nats, or None.
        config: the algorithm.
        reduce: adds row sums up over context parallel ranks; needed by gspo and by corrections at row level.

    Returns:
        loss: scalar, sum over tokens of weight x token loss.
        sums: see the module; `loss`, `policy_loss`, `tokens`, `ratio_sum`, `clipped_sum`, `engine_kl_sum` (KL from the
            sampling policy, k3), `engine_gap_sum` (absolute log-prob gap to the engine), and where they apply
            `kl_loss`, `reference_kl_sum`, `entropy_loss`, `entropy_sum`, `dual_clipped_sum`, `correction_*_sum`.

    Raises:
        ShapeError: tensors of different lengths, or `kl_coef` / `entropy_coef` above 0 without what they need.
    """
    _check(inputs, logprobs_T, entropies_T, config)
    logprobs = inputs.masked(_at_least_float32(logprobs_T))
    old = _old_logprobs(inputs, logprobs, config)
    surrogate, sums = _corrected_surrogate(inputs, logprobs, old, config, reduce)
    terms = {"policy_loss": _weighted(inputs, surrogate)}
    if inputs.reference_logprobs is not None:
        kl = kl_estimate(logprobs, inputs.masked(inputs.reference_logprobs), config.kl_estimator)
        if config.kl_unbiased:
            kl = kl * safe_exp(logprobs - old)
        terms["kl_loss"] = config.kl_coef * _weighted(inputs, kl)
        sums["reference_kl_sum"] = inputs.masked(kl.detach()).sum()
    if entropies_T is not None:
        entropies = _at_least_float32(entropies_T)
        if config.entropy_coef > 0:
            terms["entropy_loss"] = -config.entropy_coef * _weighted(inputs, entropies)
        sums["entropy_sum"] = inputs.masked(entropies.detach()).sum()
    loss = torch.stack(list(terms.values())).sum()
    sums.update(_engine_gap(inputs, logprobs.detach()))
    sums.update({name: term.detach() for name, term in terms.items()})
    return loss, {"loss": loss.detach(), "tokens": inputs.loss_mask.sum().float(), **sums}


def sft_loss(inputs: LossInputs, logprobs_T: Tensor, entropies_T: Tensor | None = None) -> tuple[Tensor, Sums]:
    """Negative log-likelihood of a micro-batch's trained tokens, weighted.

    Args:
        inputs: the micro-batch.
        logprobs_T: [T] with gradient, log-prob of each target.
        entropies_T: [T] for the metrics, or None.

    Returns:
        loss: scalar, sum over tokens of weight x -logprob.
        sums: `loss`, `tokens`, `nll_sum`, and `entropy_sum` where entropies were given.

    Raises:
        ShapeError: tensors of different lengths.
    """
    _check(inputs, logprobs_T, entropies_T, None)
    nll = -inputs.masked(_at_least_float32(logprobs_T))
    loss = _weighted(inputs, nll)
    sums: Sums = {"loss": loss.detach(), "tokens": inputs.loss_mask.sum().float(), "nll_sum": nll.detach().sum()}
    if entropies_T is not None:
        sums["entropy_sum"] = inputs.masked(entropies_T.detach().float()).sum()
    return loss, sums


def log_ratio(
    inputs: LossInputs,
    logprobs_T: Tensor,
    old_logprobs_T: Tensor,
    config: PolicyGradientConfig,
    *,
    reduce: Reduce = whole_rows,
) -> Tensor:
    """Log of the importance ratio at each token, 0 where not trained.

    `token`: logprobs - old. `sequence`: its mean over the row's trained tokens, carried to each token as
    stop_gradient(mean) + logprobs - stop_gradient(logprobs); for weights and advantages that are equal within a row
    this has the gradient of the plain sequence ratio, and it needs no gradient across context parallel ranks.

    Source: GSPO and its token form, arXiv:2507.18071 §4.3.
    """
    gap = inputs.masked(logprobs_T - old_logprobs_T)
    if config.ratio == "token":
        return gap
    mean_T = inputs.segment_mean(gap, reduce)[inputs.segment_ids]
    return inputs.masked(mean_T + logprobs_T - logprobs_T.detach())


def clipped_surrogate(
    ratio_T: Tensor, advantages_T: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """max(-r A, -clip(r, 1 - low, 1 + high) A); with dual clip at most -c A where A < 0.

    Returns:
        token losses [T], and flags [T]: `clipped_sum` where the clip decided, `dual_clipped_sum` where the cap did.

    Source: PPO arXiv:1707.06347, clip-higher arXiv:2503.14476, dual clip arXiv:1912.09729.
    """
    plain = -ratio_T * advantages_T
    clipped = -ratio_T.clamp(1 - clip_low, 1 + clip_high) * advantages_T
    loss = torch.maximum(plain, clipped)
    flags = {"clipped_sum": (clipped > plain).detach()}
    if dual_clip is not None:
        cap = -dual_clip * advantages_T
        capped = (advantages_T < 0) & (loss > cap)
        loss = torch.where(capped, cap, loss)
        flags["dual_clipped_sum"] = capped.detach()
    return loss, flags


def cispo_surrogate(
    ratio_T: Tensor, logprobs_T: Tensor, advantages_T: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """-stop_gradient(clip(r, 1 - low, 1 + high)) A logprob: every token keeps a gradient.

    Returns:
        token losses [T], and flags [T]: `clipped_sum` where the clip changed the ratio.

    Source: arXiv:2506.13585.
    """
    ratio = ratio_T.detach()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -clipped * advantages_T * logprobs_T, {"clipped_sum": clipped != ratio}


def _corrected_surrogate(
    inputs: LossInputs, logprobs_T: Tensor, old_logprobs_T: Tensor, config: PolicyGradientConfig, reduce: Reduce
) -> tuple[Tensor, Sums]:
    """The policy term of each token's loss, and its sums."""
    ratio = safe_exp(log_ratio(inputs, logprobs_T, old_logprobs_T, config, reduce=reduce))
    low, high = config.clip_low, config.clip_high
    if config.surrogate == "cispo":
        loss, flags = cispo_surrogate(ratio, logprobs_T, inputs.advantages, clip_low=low, clip_high=high)
    else:
        loss, flags = clipped_surrogate(
            ratio, inputs.advantages, clip_low=low, clip_high=high, dual_clip=config.dual_clip
        )
    sums: Sums = {"ratio_sum": inputs.masked(ratio.detach()).sum()}
    sums.update({name: inputs.masked(flag.float()).sum() for name, flag in flags.items()})
    if config.correction is None:
        return loss, sums
    factor, correction_sums = correction_weights(inputs, old_logprobs_T, config.correction, reduce=reduce)
    return loss * factor, sums | correction_sums


def _at_least_float32(values_T: Tensor) -> Tensor:
    return values_T.to(torch.promote_types(values_T.dtype, torch.float32))


def _weighted(inputs: LossInputs, losses_T: Tensor) -> Tensor:
    return (inputs.weights * inputs.masked(losses_T)).sum()


def _old_logprobs(inputs: LossInputs, logprobs_T: Tensor, config: PolicyGradientConfig) -> Tensor:
    """What stands below the ratio; before a batch's only update the trainer's old log-probs are its current ones."""
    if config.old_logprobs == "engine":
        return inputs.masked(inputs.engine_logprobs)
    return logprobs_T.detach() if inputs.old_logprobs is None else inputs.masked(inputs.old_logprobs)


def _engine_gap(inputs: LossInputs, logprobs_T: Tensor) -> Sums:
    gap = inputs.masked(logprobs_T - inputs.engine_logprobs)
    return {
        "engine_kl_sum": inputs.masked(kl_estimate(inputs.engine_logprobs, logprobs_T, "k3")).sum(),
        "engine_gap_sum": gap.abs().sum(),
    }


def _check(
    inputs: LossInputs, logprobs_T: Tensor, entropies_T: Tensor | None, config: PolicyGradientConfig | None
) -> None:
    expected = inputs.loss_mask.shape
    for name, tensor in (("logprobs", logprobs_T), ("entropies", entropies_T)):
        if tensor is not None and tensor.shape != expected:
            raise ShapeError(
                f"{name} must have shape {tuple(expected)} like the micro-batch, got {tuple(tensor.shape)}"
            )
    if config is None:
        return
    if config.kl_coef > 0 and inputs.reference_logprobs is None:
        raise ShapeError(f"kl_coef is {config.kl_coef}, but the micro-batch has no reference log-probs: compute them")
    if config.entropy_coef > 0 and entropies_T is None:
        raise ShapeError(f"entropy_coef is {config.entropy_coef}, but no entropies were given: compute them")
