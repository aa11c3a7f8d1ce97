import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import ShapeError
from agar.trainer.algorithms.advantages import advantages
from agar.trainer.algorithms.config import (
    CispoConfig,
    DrGrpoConfig,
    GrpoConfig,
    GspoConfig,
    ReinforcePlusPlusBaselineConfig,
    ReinforcePlusPlusConfig,
    RlooConfig,
)
from agar.types import Outcome

ALL = [
    GrpoConfig(),
    DrGrpoConfig(),
    RlooConfig(),
    ReinforcePlusPlusConfig(),
    ReinforcePlusPlusBaselineConfig(),
    GspoConfig(),
    CispoConfig(),
]


def values(samples, config):
    """One number per sample; checks that it stands on trained tokens and only there."""
    out = []
    for sample, array in zip(samples, advantages(samples, config), strict=True):
        assert array.dtype == np.float32
        assert array.shape == sample.token_ids.shape
        assert (array[~sample.loss_mask] == 0).all()
        trained = set(array[sample.loss_mask].tolist())
        assert len(trained) == 1
        out.append(trained.pop())
    return out


def group(make_sample, rewards, **kwargs):
    return [make_sample(f"{kwargs.get('task', 't')}{i}", reward=r, **kwargs) for i, r in enumerate(rewards)]


def test_grpo_divides_by_the_sample_deviation(make_sample):
    # mean 1/2, squared deviations 4 x 1/4, sample deviation sqrt(1/3)
    got = values(group(make_sample, [1, 0, 0, 1]), GrpoConfig())
    assert got == pytest.approx([0.8660239, -0.8660239, -0.8660239, 0.8660239], abs=1e-6)


def test_gspo_and_cispo_share_grpos_advantages(make_sample):
    samples = group(make_sample, [3, 1, 0.5])
    assert values(samples, GspoConfig()) == values(samples, CispoConfig()) == values(samples, GrpoConfig())


def test_dr_grpo_only_centres(make_sample):
    assert values(group(make_sample, [4, 1, 1]), DrGrpoConfig()) == pytest.approx([2, -1, -1])


def test_rloo_subtracts_the_mean_of_the_others(make_sample):
    rewards = [1.0, 0.25, 0.0, 2.0]
    oracle = [r - statistics.mean(rewards[:i] + rewards[i + 1 :]) for i, r in enumerate(rewards)]
    assert values(group(make_sample, rewards), RlooConfig()) == pytest.approx(oracle)


def test_reinforce_plus_plus_normalises_over_the_trained_tokens_of_the_batch(make_sample):
    samples = [
        make_sample("a", task="x", reward=1, mask=(0, 1, 1, 1)),
        make_sample("b", task="y", reward=0, mask=(0, 1)),
        make_sample("c", task="z", reward=0.5, mask=(0, 1, 0, 1)),
    ]
    tokens = [1, 1, 1, 0, 0.5, 0.5]
    oracle = [(r - statistics.mean(tokens)) / math.sqrt(statistics.variance(tokens) + 1e-8) for r in (1, 0, 0.5)]
    assert values(samples, ReinforcePlusPlusConfig()) == pytest.approx(oracle)


def test_reinforce_plus_plus_baseline_centres_per_group_then_normalises_over_the_batch(make_sample):
    samples = [
        make_sample("a", task="x", reward=1, mask=(0, 1, 1)),
        make_sample("b", task="x", reward=0, mask=(0, 1)),
        make_sample("c", task="y", reward=5, mask=(0, 1)),
        make_sample("d", task="y", reward=3, mask=(0, 1)),
    ]
    tokens = [0.5, 0.5, -0.5, 1, -1]
    oracle = [(r - statistics.mean(tokens)) / math.sqrt(statistics.variance(tokens)) for r in (0.5, -0.5, 1, -1)]
    assert values(samples, ReinforcePlusPlusBaselineConfig()) == pytest.approx(oracle, rel=1e-6)


def test_normalisation_over_the_batch_leaves_undecided_groups_at_zero(make_sample):
    decided = [make_sample("a", task="x", reward=1, mask=(0, 1, 1, 1)), make_sample("b", task="x", reward=0)]
    samples = [*decided, *group(make_sample, [7, 7], task="y"), make_sample("z", reward=9)]
    got = values(samples, ReinforcePlusPlusBaselineConfig())
    assert got[2:] == [0, 0, 0]  # though the mean over tokens, 0.5 / 11, is not
    assert got[0] > 0 > got[1]


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.type)
@pytest.mark.parametrize("rewards", [[0.1 + 0.2], [0.3, 0.3, 0.3]])
def test_a_group_of_one_or_of_equal_rewards_gives_exactly_zero(make_sample, config, rewards):
    assert values(group(make_sample, rewards), config) == [0.0] * len(rewards)


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.type)
@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.trainable])
def test_failures_are_outside_mean_deviation_and_count(make_sample, config, outcome):
    healthy = group(make_sample, [1, 0, 0.5])
    failed = make_sample("failed", reward=-100, outcome=outcome, mask=(0, 1, 1, 1))
    got = values([*healthy, failed], config)
    assert got == [*values(healthy, config), 0.0]


@pytest.mark.parametrize("outcome", [o for o in Outcome if o.trainable])
def test_truncation_and_agent_errors_count(make_sample, outcome):
    got = values([make_sample("a", reward=1), make_sample("b", reward=0, outcome=outcome)], DrGrpoConfig())
    assert got == [0.5, -0.5]


def test_two_samples_of_a_trajectory_count_once_and_share_its_value(make_sample):
    samples = [
        make_sample("a", reward=3, weight=0.5),
        make_sample("a", reward=3, weight=0.5, mask=(0, 1, 0, 1)),
        make_sample("b", reward=0),
        make_sample("c", reward=0),
    ]
    assert values(samples, DrGrpoConfig()) == [2, 2, -1, -1]


def test_roles_and_ordinals_are_groups_of_their_own(make_sample):
    samples = [
        make_sample("a", reward=1, role="solver"),
        make_sample("b", reward=0, role="solver"),
        make_sample("a", reward=10, role="critic"),
        make_sample("b", reward=20, role="critic"),
        make_sample("c", reward=100, role="solver", ordinal=1),
    ]
    assert values(samples, DrGrpoConfig()) == [0.5, -0.5, -5, 5, 0]


def test_roles_are_normalised_over_the_batch_each_for_itself(make_sample):
    solvers = [make_sample(str(i), task=str(i), reward=r, role="solver") for i, r in enumerate([0, 1])]
    critics = [make_sample(str(i), task=str(i), reward=r, role="critic") for i, r in enumerate([100, 300])]
    got = values([*solvers, *critics], ReinforcePlusPlusConfig())
    assert got == pytest.approx([-math.sqrt(3) / 2, math.sqrt(3) / 2] * 2)  # +- 1/2 over sqrt(1/3), in spreads


def test_a_first_token_does_not_count_as_trained(make_sample):
    def batch(mask):
        return [make_sample("a", reward=1, mask=mask), make_sample("b", reward=0, mask=(0, 1, 1))]

    assert values(batch((1, 1)), ReinforcePlusPlusConfig()) == values(batch((0, 1)), ReinforcePlusPlusConfig())


def test_a_trajectory_with_two_rewards_is_refused(make_sample):
    with pytest.raises(ShapeError, match="must share one reward and outcome"):
        advantages([make_sample("a", reward=1, weight=0.5), make_sample("a", reward=0, weight=0.5)], GrpoConfig())


def test_a_trajectory_that_was_emitted_twice_is_refused(make_sample):
    with pytest.raises(ShapeError, match="add to 2"):
        advantages([make_sample("a"), make_sample("a")], GrpoConfig())


attempt = st.tuples(st.sampled_from("xyz"), st.floats(-5, 5).map(lambda x: round(x, 3)), st.integers(1, 4))


@pytest.mark.parametrize("config", ALL, ids=lambda c: c.type)
@given(attempts=st.lists(attempt, min_size=1, max_size=10), data=st.data())
def test_order_and_splitting_into_samples_do_not_matter(make_sample, config, attempts, data):
    samples = [
        make_sample(str(i), task=task, reward=reward, mask=[0, *[1] * tokens])
        for i, (task, reward, tokens) in enumerate(attempts)
    ]
    whole = {s.trajectory: v for s, v in zip(samples, values(samples, config), strict=True)}
    pieces = []
    for sample, (task, reward, tokens) in zip(samples, attempts, strict=True):
        cut = data.draw(st.integers(0, tokens - 1))
        for size in (cut, tokens - cut):
            if size:
                pieces.append(
                    make_sample(
                        sample.trajectory, task=task, reward=reward, mask=[0, *[1] * size], weight=size / tokens
                    )
                )
    pieces = data.draw(st.permutations(pieces))
    for piece, value in zip(pieces, values(pieces, config), strict=True):
        assert value == pytest.approx(whole[piece.trajectory], abs=1e-4)
