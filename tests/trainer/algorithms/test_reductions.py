import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import ShapeError
from agar.trainer.algorithms.reductions import token_weights
from agar.types import GroupId


def key(name, role="agent"):
    return (GroupId(task="t", ordinal=0), role, name)


def weights(loads, names, reduction, **kwargs):
    arrays = token_weights(
        [np.array(load, dtype=np.float64) for load in loads], [key(n) for n in names], reduction=reduction, **kwargs
    )
    assert all(a.dtype == np.float32 for a in arrays)
    return [a.tolist() for a in arrays]


def test_trajectory_mean_averages_a_trajectorys_tokens_then_trajectories():
    got = weights([[0, 1, 1, 1], [1]], "ab", "trajectory_mean")
    assert got[0] == pytest.approx([0, 1 / 6, 1 / 6, 1 / 6])
    assert got[1] == [0.5]


def test_trajectory_mean_takes_the_tokens_of_all_samples_of_a_trajectory_together():
    got = weights([[1, 1, 1], [1], [1, 1]], "aab", "trajectory_mean")
    assert got == [[0.125] * 3, [0.125], [0.25] * 2]


def test_token_mean_gives_every_token_the_same_weight():
    assert weights([[0, 1, 1, 1], [1]], "ab", "token_mean") == [[0, 0.25, 0.25, 0.25], [0.25]]


def test_constant_divides_by_trajectories_and_a_fixed_length():
    got = weights([[0, 1, 1, 1], [1], [1]], "aab", "constant", constant_tokens=10)
    assert got[0] == pytest.approx([0, 0.05, 0.05, 0.05])
    assert got[1:] == [pytest.approx([0.05])] * 2


def test_a_trajectory_without_trained_tokens_is_not_counted():
    for reduction in ("trajectory_mean", "constant"):
        assert weights([[1, 1], [0, 0]], "ab", reduction, constant_tokens=2) == [[0.5, 0.5], [0, 0]]


def test_weighted_tokens_give_a_weighted_mean():
    assert weights([[1, 3], [2]], "ab", "trajectory_mean") == [[0.125, 0.375], [0.5]]
    assert weights([[1, 3], [4]], "ab", "token_mean") == [[0.125, 0.375], [0.5]]


def test_the_same_trajectory_in_two_roles_counts_twice():
    got = token_weights([np.ones(1), np.ones(3)], [key("a", "x"), key("a", "y")], reduction="trajectory_mean")
    assert got[0].tolist() == [0.5]


def test_nothing_to_train_gives_zeros():
    assert weights([[0, 0], []], "ab", "token_mean") == [[0, 0], []]


@pytest.mark.parametrize("bad", [[-1.0, 1.0], [float("nan")], [float("inf")]])
def test_a_load_below_zero_or_not_finite_is_refused(bad):
    with pytest.raises(ShapeError, match="'a' must be finite and >= 0"):
        weights([bad], "a", "token_mean")


row = st.tuples(st.sampled_from("abcd"), st.lists(st.floats(0, 4).map(lambda x: round(x, 2)), max_size=6))


@given(rows=st.lists(row, min_size=1, max_size=8), losses=st.data())
@pytest.mark.parametrize("reduction", ["trajectory_mean", "token_mean", "constant"])
def test_weighted_sum_equals_the_average_taken_in_two_loops(reduction, rows, losses):
    values = [losses.draw(st.lists(st.floats(-3, 3), min_size=len(load), max_size=len(load))) for _, load in rows]
    got = weights([load for _, load in rows], [name for name, _ in rows], reduction, constant_tokens=7)
    total = sum(w * x for ws, xs in zip(got, values, strict=True) for w, x in zip(ws, xs, strict=True))

    per_trajectory = {}
    for (name, load), xs in zip(rows, values, strict=True):
        for u, x in zip(load, xs, strict=True):
            numerator, denominator = per_trajectory.get(name, (0.0, 0.0))
            per_trajectory[name] = (numerator + u * x, denominator + u)
    live = [pair for pair in per_trajectory.values() if pair[1] > 0]
    if not live:
        expected = 0.0
    elif reduction == "trajectory_mean":
        expected = sum(n / d for n, d in live) / len(live)
    elif reduction == "token_mean":
        expected = sum(n for n, _ in live) / sum(d for _, d in live)
    else:
        expected = sum(n for n, _ in live) / (7 * len(live))
    assert total == pytest.approx(expected, abs=1e-5)
