"""Reductions as per-token weights, fixed before a batch is split.

The loss of a step is sum over tokens of weight x token loss. The weights come from the whole batch, so neither loss nor
gradient depends on packing, micro-batches, data parallelism or context parallelism.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agar.errors import ShapeError
from agar.trainer.algorithms.config import Reduction
from agar.trainer.algorithms.trajectories import TrajectoryKey
from agar.types import Floats


def token_weights(
    loads: Sequence[npt.NDArray[np.float64]],
    trajectories: Sequence[TrajectoryKey],
    *,
    reduction: Reduction,
    constant_tokens: int = 1,
) -> list[Floats]:
    """The weight of every token in the step's loss.

    With u the loads, N the trajectories that have a load above 0, and U the sum of loads over all samples of a
    token's trajectory: `trajectory_mean` is u / (U N), a mean over a trajectory's tokens, then over trajectories;
    `token_mean` is u / (sum of all loads); `constant` is u / (N constant_tokens).

    Example: trajectories a (3 tokens) and b (1 token), loads 1: `trajectory_mean` gives 1/6 to each token of a and 1/2
    to b's; `token_mean` gives 1/4 to each; `constant` with 10 gives 1/20 to each.

    Args:
        loads: per row float [T], >= 0; 0 where the token is not trained, 1 where it is, other values for weighted
            training.
        trajectories: the trajectory of each row.
        reduction: how token losses add up.
        constant_tokens: divisor per trajectory of the `constant` reduction, in tokens.

    Returns:
        Per row float32 [T]. They add to 1 for the first two reductions, unless nothing is trained.

    Raises:
        ShapeError: a load is negative or not finite.

    Source: per-trajectory mean as in GRPO (arXiv:2402.03300), token mean in DAPO (arXiv:2503.14476), constant in
    Dr. GRPO (arXiv:2503.20783).
    """
    totals: dict[TrajectoryKey, float] = {}
    for load, key in zip(loads, trajectories, strict=True):
        if len(load) and (not np.isfinite(load).all() or load.min() < 0):
            raise ShapeError(f"token loads of trajectory {key[2]!r} must be finite and >= 0, got minimum {load.min()}")
        totals[key] = totals.get(key, 0.0) + float(load.sum())
    count = sum(total > 0 for total in totals.values())
    everything = sum(totals.values())

    def divisor(key: TrajectoryKey) -> float:
        if reduction == "trajectory_mean":
            return totals[key] * count
        return everything if reduction == "token_mean" else float(count * constant_tokens)

    return [
        (load / divisor(key)).astype(np.float32) if totals[key] > 0 else np.zeros(len(load), np.float32)
        for load, key in zip(loads, trajectories, strict=True)
    ]
