import json

from hypothesis import example, given
from hypothesis import strategies as st

from agar.ledger.canonical import freeze, message_key, spell, unfit
from agar.types import Message, ToolCall

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.floats(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def shuffled(value):
    if isinstance(value, dict):
        return {key: shuffled(item) for key, item in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_key_order_and_spelling_do_not_count(value):
    assert freeze(shuffled(value)) == freeze(json.loads(json.dumps(value, indent=2)))


@given(VALUES, VALUES)
def test_equal_keys_mean_equal_values(one, other):
    if freeze(one) == freeze(other):
        assert one == other


def test_true_is_not_one_but_one_is_one_point_nought():
    assert freeze({"a": True}) != freeze({"a": 1})
    assert freeze({"a": 1.0}) == freeze({"a": 1})
    assert freeze([["a", 1]]) != freeze({"a": 1})


def test_a_message_key_ignores_reasoning_ids_and_trailing_white_space():
    one = Message(role="assistant", content="x", reasoning="r", tool_calls=(ToolCall(id="1", name="f"),))
    other = Message(role="assistant", content="x \n", tool_calls=(ToolCall(id="2", name="f"),))
    assert message_key(one) == message_key(other)
    assert message_key(one) != message_key(Message(role="user", content="x"))


VALUES = st.none() | st.booleans() | st.integers() | st.text(st.characters()) | st.floats(allow_nan=False)


@given(st.dictionaries(st.text() | st.integers(), VALUES | st.lists(VALUES, max_size=2), max_size=3))
@example({"a": 2**64})
@example({"a": "\ud800"})
@example({"a": '\x00\x1f\x7f\u2028\n"\\/'})
@example({"a": 1e16})
def test_arguments_are_spelt_as_json_does_whoever_writes_them(arguments):
    assert spell(arguments) == json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def test_spelling_is_compact_and_keeps_key_order():
    assert spell({"b": "é", "a": [1, True]}) == '{"b":"é","a":[1,true]}'


def test_nesting_is_bounded():
    deep = 1
    for _ in range(64):
        deep = [deep]
    assert unfit(deep) is None
    assert unfit([deep]) == "are nested too deeply"


def test_numbers_fit_into_64_bits():
    assert unfit({"a": [2**64 - 1, -(2**63), 1.5, -0.0, True, None, "x"]}) is None
    for number in (2**64, -(2**63) - 1, float("inf"), -float("inf"), float("nan")):
        assert unfit({"a": [1, {"b": number}]}) == "hold a number beyond 64 bits"
