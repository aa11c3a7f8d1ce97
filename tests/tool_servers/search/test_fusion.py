"""Reciprocal rank fusion."""

from agar.tool_servers.search.fusion import fuse


def test_a_passage_that_both_find_beats_one_that_a_single_ranking_puts_first():
    fused = fuse([[(1, 9.0), (2, 8.0)], [(3, 0.4), (2, 0.3)]], count=3)
    assert fused == [(2, 2 / 62), (1, 1 / 61), (3, 1 / 61)]


def test_scores_do_not_count_only_places_do():
    assert fuse([[(1, 1e9), (2, 1.0)]], count=2) == fuse([[(1, 2.0), (2, -5.0)]], count=2)


def test_no_more_than_wanted_and_nothing_of_nothing():
    assert len(fuse([[(n, 0.0) for n in range(10)]], count=4)) == 4
    assert fuse([[], []], count=3) == []
