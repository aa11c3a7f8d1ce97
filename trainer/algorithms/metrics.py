"""Metrics of a step from the sums that its losses gave; without torch, so that a driver needs none."""

from collections.abc import Mapping

from agar.types import Metrics


def mean_metrics(sums: Mapping[str, float]) -> Metrics:
    """Metrics of a step from its total sums: `x_sum` becomes `trainer/x_mean`, the rest `trainer/x`.

    Args:
        sums: what `policy_loss` or `sft_loss` gave, added up over micro-batches and ranks.

    Returns:
        Means over trained tokens, and parts of the loss as they stand; means are 0 where nothing was trained.
    """
    tokens = max(sums.get("tokens", 0.0), 1.0)
    return {
        f"trainer/{name.removesuffix('_sum')}_mean" if name.endswith("_sum") else f"trainer/{name}": (
            value / tokens if name.endswith("_sum") else value
        )
        for name, value in sums.items()
    }
