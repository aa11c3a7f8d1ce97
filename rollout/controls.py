"""Controls: changes to a batch under which nothing may be learnt."""

import numpy as np

from agar.types import GroupId, Sample


def shuffle_rewards(samples: list[Sample], *, seed: int) -> list[Sample]:
    """Permute rewards among the trajectories of each group and role.

    Every marginal statistic of the rewards stays; what an action earns is unrelated to the action. The permutation
    follows from the seed and the group's ordinal alone, so a resumed run deals as one that was never stopped.
    """
    trajectories: dict[tuple[GroupId, str], dict[str, float]] = {}
    for sample in samples:
        trajectories.setdefault((sample.group, sample.role), {})[sample.trajectory] = sample.reward
    dealt: dict[tuple[GroupId, str, str], float] = {}
    dealers: dict[GroupId, np.random.Generator] = {}
    for (group, role), rewards in trajectories.items():
        dealer = dealers.setdefault(group, np.random.default_rng([seed, group.ordinal]))
        permuted = dealer.permutation(np.array(list(rewards.values())))
        for trajectory, reward in zip(rewards, permuted, strict=True):
            dealt[group, role, trajectory] = float(reward)
    return [
        sample.but(reward=dealt[sample.group, sample.role, sample.trajectory], rewards=np.zeros_like(sample.rewards))
        for sample in samples
    ]
