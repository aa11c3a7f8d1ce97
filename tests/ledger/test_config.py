from agar.ledger.config import RecordPolicy


def test_of_two_staleness_bounds_the_tighter_holds():
    assert RecordPolicy().within(2).max_staleness == 2
    assert RecordPolicy(max_staleness=1).within(2).max_staleness == 1
    assert RecordPolicy(max_staleness=4).within(0).max_staleness == 0


def test_a_changed_history_is_kept_only_where_nothing_says_otherwise():
    assert RecordPolicy().keeps_changed_history
    for setting in ({"history": "as_sent"}, {"match": "strict"}, {"on_divergence": "fork"}):
        assert not RecordPolicy(**setting).keeps_changed_history
