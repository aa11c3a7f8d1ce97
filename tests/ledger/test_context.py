import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agar.ledger.context import Context
from agar.ledger.trace import digest

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=200)


@given(st.lists(st.tuples(st.integers(0, 30), IDS, st.booleans()), max_size=20))
def test_each_holds_its_own_ids_whatever_else_has_followed_what_it_follows(steps):
    contexts, expected = [Context.of(np.array([], np.int32))], [[]]
    for which, more, hashed in steps:
        after = max(len(contexts) - 1 - which // 4, 0)  # mostly the newest
        contexts.append(contexts[after].followed(np.array(more, np.int32)))
        expected.append([*expected[after], *more])
        if hashed:
            assert contexts[-1].digest == digest(np.array(expected[-1], np.int32))
    for context, ids in zip(contexts, expected, strict=True):
        assert (context.ids.tolist(), context.ids.dtype) == (ids, np.int32)
        assert context.digest == digest(np.array(ids, np.int32))


def test_what_goes_on_in_a_row_is_not_copied_again():
    whole = Context.of(np.arange(1000, dtype=np.int32))
    longer = whole.followed(np.array([7], np.int32))
    assert np.shares_memory(whole.ids, longer.ids)
    assert not np.shares_memory(longer.ids, whole.followed(np.array([8], np.int32)).ids)


def test_it_can_not_be_written_to():
    assert not Context.of(np.arange(3, dtype=np.int32)).followed(np.array([7], np.int32)).ids.flags.writeable
