"""Advantages: one number per trajectory, from the rewards of its group.

Groups are keyed by (group, role); statistics count trajectories, never samples; trajectories that did not end in a
trainable outcome (an engine, a sandbox or the environment failed) are outside mean, deviation and count.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from agar.trainer.algorithms.config import PolicyGradientConfig
from agar.trainer.algorithms.trajectories import Trajectory, TrajectoryKey, collect, key_of
from agar.types import Floats, GroupId, Sample

STD_EPS = 1e-6
"""Added to a group's standard deviation, in reward units."""
WHITEN_EPS = 1e-8
"""Added to the batch's variance, in squared reward units."""


def advantages(samples: Sequence[Sample], config: PolicyGradientConfig) -> list[Floats]:
    """Per-token advantages of a batch.

    Args:
        samples: the batch of one policy, whole groups.
        config: the algorithm.

    Returns:
        One float32 [T] per sample: its trajectory's advantage where `loss_mask` is set, 0 elsewhere, and 0 throughout
        for an outcome that does not train.

    Raises:
        ShapeError: the samples of one trajectory disagree on reward or outcome.
    """
    values = trajectory_advantages(collect(samples).values(), config)
    return [np.where(s.loss_mask, values.get(key_of(s), 0.0), 0.0).astype(np.float32) for s in samples]


def trajectory_advantages(
    trajectories: Iterable[Trajectory], config: PolicyGradientConfig
) -> dict[TrajectoryKey, float]:
    """The advantage of every trainable trajectory.

    With R the rewards of a group's n trainable trajectories: baseline `mean` gives R - mean(R), `leave_one_out`
    R - mean of the others, `none` R itself. `divide_by_std` then divides by the sample deviation (n - 1) plus
    `STD_EPS`. Whitening subtracts the mean over the batch's trained tokens and divides by their sample deviation, per
    role. A group of one or with equal rewards gives 0 under a baseline; a batch of equal rewards gives 0 without one.

    Args:
        trajectories: all trajectories of the batch, failed ones included.
        config: the algorithm.

    Returns:
        Advantage by trajectory key; failed trajectories are absent.

    Source: GRPO arXiv:2402.03300, Dr. GRPO arXiv:2503.20783, RLOO arXiv:2402.14740, REINFORCE++ arXiv:2501.03262.
    """
    groups: dict[tuple[GroupId, str], list[Trajectory]] = {}
    for trajectory in trajectories:
        if trajectory.outcome.trainable:
            groups.setdefault(trajectory.key[:2], []).append(trajectory)
    values: dict[TrajectoryKey, float] = {}
    undecided: set[TrajectoryKey] = set()
    for members in groups.values():
        centred = _centre(np.array([member.reward for member in members], dtype=np.float64), config)
        values.update(zip((member.key for member in members), centred.tolist(), strict=True))
        if config.needs_group and _all_equal(members):
            undecided.update(member.key for member in members)
    if config.whitened:
        _whiten(values, [member for members in groups.values() for member in members])
    values.update(dict.fromkeys(undecided, 0.0))
    return values


def _all_equal(members: Sequence[Trajectory]) -> bool:
    return all(member.reward == members[0].reward for member in members)


def _centre(rewards_N: npt.NDArray[np.float64], config: PolicyGradientConfig) -> npt.NDArray[np.float64]:
    if config.baseline == "none":
        return rewards_N
    n = len(rewards_N)
    if n == 1 or rewards_N.max() == rewards_N.min():
        return np.zeros(n)
    centred: npt.NDArray[np.float64] = rewards_N - rewards_N.mean()
    if config.baseline == "leave_one_out":
        centred = centred * n / (n - 1)
    if config.divide_by_std:
        centred = centred / (rewards_N.std(ddof=1) + STD_EPS)
    return centred


def _whiten(values: dict[TrajectoryKey, float], members: Sequence[Trajectory]) -> None:
    """Normalise `values` in place, per role, each trajectory counted with its trained tokens."""
    for role in sorted({member.key[1] for member in members}):
        rows = [member for member in members if member.key[1] == role and member.trained_tokens > 0]
        tokens = np.array([row.trained_tokens for row in rows], dtype=np.float64)
        value = np.array([values[row.key] for row in rows], dtype=np.float64)
        total = tokens.sum()
        if total < 2 or value.max() == value.min():
            values.update({row.key: 0.0 for row in rows})
            continue
        deviation = value - (tokens * value).sum() / total
        variance = (tokens * deviation**2).sum() / (total - 1)
        values.update(
            zip((row.key for row in rows), (deviation / np.sqrt(variance + WHITEN_EPS)).tolist(), strict=True)
        )
