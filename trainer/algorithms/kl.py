"""Per-token estimators of KL(policy || reference) from the log-probs of sampled tokens."""

from typing import Literal

import torch
from torch import Tensor

EXPONENT_BOUND = 20.0
"""Exponents are clamped to +- this, so that a far-off token gives a large finite number instead of infinity."""


def safe_exp(exponent_T: Tensor) -> Tensor:
    """exp, with the exponent clamped to +-20; the gradient beyond is 0."""
    return torch.exp(exponent_T.clamp(-EXPONENT_BOUND, EXPONENT_BOUND))


def kl_estimate(logprobs_T: Tensor, reference_T: Tensor, estimator: Literal["k1", "k2", "k3"]) -> Tensor:
    """Estimate the KL at each token, with d = logprobs - reference.

    k1 = d, unbiased, high variance; k2 = d^2 / 2, its gradient is that of the KL in expectation; k3 = e^-d - 1 + d,
    unbiased, never negative.

    Args:
        logprobs_T: [T] of the policy.
        reference_T: [T] of the reference policy.
        estimator: which.

    Returns:
        [T], in nats.

    Source: J. Schulman, "Approximating KL divergence" (2020).
    """
    gap = logprobs_T - reference_T
    if estimator == "k1":
        return gap
    return gap**2 / 2 if estimator == "k2" else safe_exp(-gap) - 1 + gap
