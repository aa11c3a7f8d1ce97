"""What a batch or an evaluation says about itself, in numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import comb

import numpy as np

from agar.ledger.trace import Trace
from agar.rollout.buffer import Group
from agar.types import Outcome, Sample


def trace_metrics(traces: Sequence[Trace], prefix: str) -> dict[str, float]:
    """Means over the trainable traces, and the share of each outcome over all of them.

    Args:
        traces: finished episodes.
        prefix: put before each name, for instance `rollout`.
    """
    counted = [trace for trace in traces if trace.outcome.trainable]
    metrics = {
        f"{prefix}/outcome/{outcome}": sum(t.outcome == outcome for t in traces) / max(len(traces), 1)
        for outcome in Outcome
        if any(t.outcome == outcome for t in traces)
    }
    metrics[f"{prefix}/trajectories"] = float(len(counted))
    if not counted:
        return metrics
    rewards = np.array([trace.reward.total for trace in counted])
    metrics |= {
        f"{prefix}/reward_mean": float(rewards.mean()),
        f"{prefix}/reward_std": float(rewards.std()),
        f"{prefix}/turns_mean": float(np.mean([len(trace.nodes) for trace in counted])),
        f"{prefix}/sampled_tokens_mean": float(np.mean([sampled_tokens(trace) for trace in counted])),
        f"{prefix}/env_s_mean": float(np.mean([float(trace.meta.get("env_s", 0.0)) for trace in counted])),
    }
    for name in sorted({name for trace in counted for name in trace.reward.parts}):
        metrics[f"{prefix}/reward/{name}_mean"] = float(np.mean([t.reward.parts.get(name, 0.0) for t in counted]))
    return metrics


def sampled_tokens(trace: Trace) -> int:
    """Tokens that the engine sampled in an episode."""
    return sum(len(node.sampled) for node in trace.nodes)


def rollout_metrics(
    groups: Sequence[Group], samples: Sequence[Sample], versions: Mapping[str, int], counts: Counter[str]
) -> dict[str, float]:
    """The `rollout/` metrics of one batch."""
    metrics = trace_metrics([trace for group in groups for trace in group.traces], "rollout")
    mixed = [len({trace.reward.total for trace in group.trainable}) > 1 for group in groups]
    ages = [versions[s.policy] - s.oldest_version for s in samples if s.oldest_version is not None]
    metrics |= {
        "rollout/mixed_groups": float(np.mean(mixed)) if mixed else 0.0,
        "rollout/samples": float(len(samples)),
        "rollout/trained_tokens": float(sum(int(s.loss_mask.sum()) for s in samples)),
        "rollout/staleness_max": float(max(ages, default=0)),
        "rollout/staleness_mean": float(np.mean(ages)) if ages else 0.0,
    }
    return metrics | {f"rollout/{name}": float(count) for name, count in sorted(counts.items())}


def pass_at_k(successes: Iterable[tuple[int, int]], k: int) -> float | None:
    """Unbiased estimate of the chance that at least one of k attempts succeeds.

    Args:
        successes: (attempts, successful attempts) of each task; tasks with fewer than k attempts are left out.
        k: attempts granted.

    Returns:
        The mean over tasks of 1 - C(n - c, k) / C(n, k); None where no task has k attempts.

    Source: Chen et al., arXiv:2107.03374, equation 1.
    """
    values = [1.0 - comb(n - c, k) / comb(n, k) for n, c in successes if n >= k]
    return float(np.mean(values)) if values else None
