"""pass@k against brute force; the shuffled control keeps what it must."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.rollout.controls import shuffle_rewards
from agar.rollout.statistics import pass_at_k
from agar.types import GroupId, Outcome, Sample


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_k_subsets_with_a_success(n, data):
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    outcomes = [True] * c + [False] * (n - c)
    subsets = list(combinations(outcomes, k))
    assert pass_at_k([(n, c)], k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))


def test_tasks_with_too_few_attempts_are_left_out():
    assert pass_at_k([(1, 1), (2, 0)], 2) == 0.0
    assert pass_at_k([(1, 1)], 2) is None
    assert pass_at_k([], 1) is None


def sample(group: int, trajectory: str, reward: float) -> Sample:
    return Sample(
        policy="main",
        group=GroupId(task="t", ordinal=group),
        role="agent",
        trajectory=trajectory,
        token_ids=[1, 2],
        loss_mask=[False, True],
        source=[0, 1],
        logprobs=[0.0, -1.0],
        policy_versions=[-1, 0],
        rewards=[0.0, reward],
        reward=reward,
        weight=1.0,
        outcome=Outcome.COMPLETED,
    )


def test_shuffled_rewards_stay_in_their_group_and_are_one_value_per_trajectory():
    rewards = {0: [0.0, 1.0, 2.0, 3.0], 1: [7.0, 7.0, 8.0, 9.0]}
    samples = [sample(g, f"{g}/{i}", r) for g, values in rewards.items() for i, r in enumerate(values)]
    samples.append(sample(0, "0/1", 1.0))  # a second sample of trajectory 0/1
    moved = False
    for seed in range(5):
        dealt = shuffle_rewards(samples, seed=seed)
        for group, values in rewards.items():
            assert sorted(s.reward for s in dealt[:8] if s.group.ordinal == group) == sorted(values)
        assert dealt[8].reward == dealt[1].reward
        assert all(not s.rewards.any() for s in dealt)
        moved |= [s.reward for s in dealt[:8]] != [s.reward for s in samples[:8]]
        alone = shuffle_rewards([s for s in samples if s.group.ordinal == 1], seed=seed)
        assert [s.reward for s in alone] == [s.reward for s in dealt if s.group.ordinal == 1], "groups do not matter"
    assert moved
