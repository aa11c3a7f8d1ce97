"""Trajectories of a batch: the unit that statistics and reductions count.

Key: (group, role, trajectory). A trajectory may be spread over several samples; its reward is one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agar.errors import ShapeError
from agar.types import GroupId, Outcome, Sample

TrajectoryKey = tuple[GroupId, str, str]
"""Group, role, trajectory id."""

_SHARE_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One attempt of one role, over all its samples.

    Attributes:
        key: (group, role, trajectory id).
        reward: the total that group statistics use.
        outcome: how the episode ended.
        samples: positions of its samples in the batch, ascending.
        trained_tokens: tokens of its samples that a model can be trained on (masked in and not the first of a row).
    """

    key: TrajectoryKey
    reward: float
    outcome: Outcome
    samples: tuple[int, ...]
    trained_tokens: int


def key_of(sample: Sample) -> TrajectoryKey:
    """The trajectory that a sample belongs to."""
    return sample.group, sample.role, sample.trajectory


def collect(samples: Sequence[Sample]) -> dict[TrajectoryKey, Trajectory]:
    """Gather a batch's samples by trajectory, in order of first appearance.

    Raises:
        ShapeError: the samples of one trajectory disagree on reward or outcome, or their weights add to more than 1.
    """
    members: dict[TrajectoryKey, list[int]] = {}
    for position, sample in enumerate(samples):
        members.setdefault(key_of(sample), []).append(position)
    return {key: _trajectory(key, positions, samples) for key, positions in members.items()}


def _trajectory(key: TrajectoryKey, positions: list[int], samples: Sequence[Sample]) -> Trajectory:
    first = samples[positions[0]]
    name = f"trajectory {key[2]!r} (role {key[1]!r}, task {key[0].task!r})"
    for position in positions[1:]:
        other = samples[position]
        if other.reward != first.reward or other.outcome is not first.outcome:
            raise ShapeError(
                f"the samples of {name} must share one reward and outcome, got {first.reward} {first.outcome.value} "
                f"and {other.reward} {other.outcome.value}: give each attempt its own trajectory id"
            )
    share = sum(samples[position].weight for position in positions)
    if share > 1 + _SHARE_TOLERANCE:
        raise ShapeError(
            f"the weights of the {len(positions)} samples of {name} add to {share:.6g}, expected at most 1: "
            "two attempts share an id, or an attempt was emitted twice"
        )
    return Trajectory(
        key=key,
        reward=float(first.reward),
        outcome=first.outcome,
        samples=tuple(positions),
        trained_tokens=sum(int(samples[position].loss_mask[1:].sum()) for position in positions),
    )
