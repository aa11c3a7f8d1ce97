from hypothesis import given
from hypothesis import strategies as st

from agar.ledger.canonical import message_key, steps
from agar.ledger.trie import Trie
from agar.types import ImagePart, Message, TextPart, ToolCall, ToolSpec

SH = ToolSpec(name="sh", description="Run.")
MESSAGES = [Message(role=role, content=text) for role in ("user", "assistant", "tool") for text in "ab"]
HISTORIES = st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=6)
CALLS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 8)),  # how much of the last history is kept; None for all of it
        HISTORIES,
        st.booleans(),  # whether tools are offered
        st.booleans(),  # whether the whole history is recorded
    ),
    max_size=12,
)


def expected(recorded, sent, tools):
    """The steps of a history, and how many of them begin a recorded one; worked out anew."""
    path = steps(sent, [message_key(message) for message in sent])
    keys = [key for key, _ in path]
    begun = [
        depth
        for depth in range(len(keys) + 1)
        if any(with_tools == tools and known[:depth] == keys[:depth] for with_tools, known in recorded)
    ]
    return path, max(begun, default=0)


@given(CALLS, st.sampled_from([1, 12, 1000]))
def test_a_history_is_found_as_if_it_had_never_been_walked_before(calls, limit):
    trie, recorded, last = Trie(None, limit_characters=limit), [], ()
    for kept, more, offered, record in calls:
        sent = (*last[:kept], *more) if kept is not None else (*last, *more)
        tools = (SH,) if offered else ()
        walk = trie.walk(sent, tools)
        assert trie.held_characters <= limit
        path, depth = expected(recorded, sent, tools)
        assert walk.steps == path
        assert len(walk.states) == depth
        if record:
            state = trie.root(tools)
            for key, _ in walk.steps:
                state = trie.step(state, key)
            recorded.append((tools, [key for key, _ in walk.steps]))
            assert trie.walk(sent, tools).states[-1] == state
        last = sent


def test_a_run_of_results_that_goes_on_is_another_step():
    ask, first, second = MESSAGES[0], MESSAGES[4], MESSAGES[5]
    trie = Trie(None)
    state = trie.root(())
    for key, _ in trie.walk((ask, first), ()).steps:
        state = trie.step(state, key)
    assert len(trie.walk((ask, first), ()).states) == 2
    walk = trie.walk((ask, first, second), ())
    assert [consumed for _, consumed in walk.steps] == [1, 3]
    assert len(walk.states) == 1


def test_whatever_a_message_is_large_by_it_counts():
    call = ToolCall(id="1", name="sh", arguments={"command": [{"line": "x" * 1000}]})
    large = [
        Message(role="user", content="x" * 1000),
        Message(role="user", content=(TextPart(text="a"), ImagePart(url="x" * 1000))),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="assistant", reasoning="x" * 1000),
        Message(role="tool", tool_call_id="x" * 1000),
    ]
    for message in large:
        trie = Trie(None)
        trie.walk((message,), ())
        assert 1000 <= trie.held_characters <= 1100
        trie = Trie(None, limit_characters=999)
        trie.walk((message,), ())
        assert trie.held_characters == 0
