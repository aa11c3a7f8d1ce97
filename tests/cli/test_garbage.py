import gc

import pytest

from agar.cli.garbage import collecting_rarely


def look_and_fail(seen):
    with collecting_rarely():
        seen.update(threshold=gc.get_threshold(), frozen=gc.get_freeze_count())
        raise KeyError


def test_what_is_there_is_left_alone_and_the_collector_is_as_before_afterwards():
    before, seen = gc.get_threshold(), {}
    with pytest.raises(KeyError):
        look_and_fail(seen)
    assert seen["threshold"] > before
    assert seen["frozen"] > 1000
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
