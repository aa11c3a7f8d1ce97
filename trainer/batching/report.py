"""Numbers about a planned step: rewards and groups, packing and balance."""

from collections.abc import Sequence

import numpy as np

from agar.trainer.algorithms.trajectories import Trajectory
from agar.trainer.batching.microbatch import MicroBatch
from agar.trainer.batching.pack import row_cost
from agar.trainer.batching.rows import Row
from agar.types import Metrics


def batch_metrics(trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> Metrics:
    """Counts and means over a batch.

    `trainer/mixed_groups` counts (group, role) pairs whose trainable rewards differ: the ones that teach anything
    under a group baseline.
    """
    trainable = [trajectory for trajectory in trajectories if trajectory.outcome.trainable]
    groups: dict[object, set[float]] = {}
    for trajectory in trainable:
        groups.setdefault(trajectory.key[:2], set()).add(trajectory.reward)
    trained = sum(int(row.loss_mask.sum()) for row in rows)
    magnitude = sum(float(np.abs(row.advantages).sum()) for row in rows)
    return {
        "trainer/trajectories": float(len(trainable)),
        "trainer/failed_trajectories": float(len(trajectories) - len(trainable)),
        "trainer/groups": float(len(groups)),
        "trainer/mixed_groups": float(sum(len(rewards) > 1 for rewards in groups.values())),
        "trainer/reward_mean": float(np.mean([t.reward for t in trainable])) if trainable else 0.0,
        "trainer/rows": float(len(rows)),
        "trainer/trained_tokens": float(trained),
        "trainer/advantage_abs_mean": magnitude / trained if trained else 0.0,
    }


def packing_metrics(microbatches: Sequence[Sequence[MicroBatch]], budget: int) -> Metrics:
    """How full the micro-batches are and how even the ranks.

    `trainer/packing_efficiency` is tokens / (micro-batches x max(budget, longest micro-batch)); `trainer/imbalance` is
    the costliest rank over the mean rank, 1 at best.
    """
    sizes = [sum(len(m) for m in rank if m.rows != (-1,)) for rank in microbatches]
    costs = [sum(_cost(m) for m in rank) for rank in microbatches]
    count = sum(len(rank) for rank in microbatches)
    widest = max((len(m) for rank in microbatches for m in rank), default=0)
    return {
        "trainer/microbatches_per_rank": float(len(microbatches[0])),
        "trainer/filler_microbatches": float(sum(m.rows == (-1,) for rank in microbatches for m in rank)),
        "trainer/packed_tokens": float(sum(sizes)),
        "trainer/packing_efficiency": sum(sizes) / (count * max(budget, widest)) if count else 0.0,
        "trainer/imbalance": max(costs) * len(costs) / sum(costs) if sum(costs) else 1.0,
    }


def _cost(microbatch: MicroBatch) -> float:
    if microbatch.rows == (-1,):
        return 0.0
    return sum(row_cost(int(length)) for length in np.diff(microbatch.cu_seqlens))
