import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import ShapeError
from agar.trainer.batching.pack import distribute, pack, row_cost

lengths_of = st.lists(st.integers(1, 40), max_size=25)


def test_first_fit_decreasing_by_hand():
    # by length: 7, 5, 4, 3, 1: bins (7, 3), (5, 4, 1)
    assert pack([4, 7, 1, 5, 3], budget=10) == [(1, 4), (0, 2, 3)]


def test_a_row_above_the_budget_is_alone():
    assert pack([3, 50, 2], budget=10) == [(1,), (0, 2)]


@given(lengths=lengths_of, budget=st.integers(1, 50))
def test_every_row_is_packed_once_within_the_budget_or_alone(lengths, budget):
    bins = pack(lengths, budget=budget)
    assert sorted(itertools.chain.from_iterable(bins)) == list(range(len(lengths)))
    for members in bins:
        assert list(members) == sorted(members)
        assert len(members) == 1 or sum(lengths[i] for i in members) <= budget
    fitting = [length for length in lengths if length <= budget]
    shared = len(bins) - (len(lengths) - len(fitting))
    assert shared <= 2 * math.ceil(sum(fitting) / budget)  # no two bins would fit into one


@given(lengths=lengths_of, budget=st.integers(1, 50), ranks=st.integers(1, 6))
def test_every_rank_gets_equally_many_bins_and_every_row_once(lengths, budget, ranks):
    packed = pack(lengths, budget=budget)
    shares = distribute(packed, lengths, ranks=ranks)
    assert len(shares) == ranks
    assert len({len(share) for share in shares}) == 1
    bins = [members for share in shares for members in share]
    assert sorted(itertools.chain.from_iterable(bins)) == list(range(len(lengths)))
    assert len(bins) < len(packed) + ranks
    assert all(len(b) <= 1 or sum(lengths[i] for i in b) <= budget for b in bins)
    if () in bins:
        assert all(len(members) <= 1 for members in bins)
    for share in shares:
        costs = [sum(row_cost(lengths[i]) for i in members) for members in share]
        assert costs == sorted(costs, reverse=True)


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=25), ranks=st.integers(1, 6))
def test_no_rank_exceeds_another_by_more_than_one_bin(lengths, ranks):
    shares = distribute(pack(lengths, budget=40), lengths, ranks=ranks)
    work = [sum(row_cost(lengths[i]) for members in share for i in members) for share in shares]
    largest = max(sum(row_cost(lengths[i]) for i in members) for share in shares for members in share)
    assert max(work) - min(work) <= largest + 1e-9


def test_nothing_to_pack_gives_every_rank_nothing():
    assert distribute(pack([], budget=4), [], ranks=3) == [[], [], []]


def test_one_row_for_two_ranks_leaves_an_empty_bin():
    assert distribute([(0,)], [5], ranks=2) == [[(0,)], [()]]


def test_bad_sizes_are_refused():
    with pytest.raises(ShapeError, match="budget 0"):
        pack([1], budget=0)
    with pytest.raises(ShapeError, match="at least 1"):
        pack([0], budget=4)
    with pytest.raises(ShapeError, match="ranks must be at least 1"):
        distribute([], [], ranks=0)
