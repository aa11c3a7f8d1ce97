"""The spaces are Gymnasium's kind: membership, sampling, seeds, JSON, vectors."""

import json

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.spaces import MessageSpace, TurnSpace
from agar.types import Finish, ImagePart, Message, TextPart, ToolCall, ToolSpec, Turn

texts = st.text(max_size=20)
arguments = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts | st.lists(texts), max_size=3)
calls = st.builds(ToolCall, id=texts, name=texts, arguments=arguments)
parts = st.builds(TextPart, text=texts) | st.builds(ImagePart, url=texts)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts | st.lists(parts, min_size=1, max_size=3).map(tuple),
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    reasoning=st.none() | texts,
)
observations = texts | messages | st.lists(messages, max_size=3)
turns = st.builds(
    Turn,
    text=texts,
    reasoning=st.none() | texts,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    finish=st.sampled_from(Finish),
    parse_error=st.none() | texts,
)


@given(st.lists(observations, max_size=4))
def test_observations_are_members_and_come_back_from_json(items):
    space = MessageSpace()
    assert all(item in space for item in items)
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(items)))) == items


@given(st.lists(turns | texts, max_size=4))
def test_turns_are_members_and_come_back_from_json(items):
    space = TurnSpace()
    assert all(item in space for item in items)
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(items)))) == items


@pytest.mark.parametrize("item", [None, 3, b"text", ["text"], {"role": "user"}, Turn(text="a")])
def test_what_is_not_a_message_is_no_observation(item):
    assert item not in MessageSpace()


@pytest.mark.parametrize("item", [None, 3, b"text", Message(role="user"), [Turn(text="a")]])
def test_what_is_not_a_turn_is_no_action(item):
    assert item not in TurnSpace()


TOOL = ToolSpec(
    name="dig",
    parameters={
        "type": "object",
        "properties": {
            "depth": {"type": "integer", "minimum": 5, "maximum": 6},
            "how": {"enum": ["slow", "fast"]},
            "share": {"type": "number"},
            "sure": {"type": "boolean"},
            "where": {"type": "array", "items": {"type": "string"}},
            "who": {"type": "object", "properties": {"name": {"type": "string"}}},
            "why": {"type": "null"},
        },
    },
)


def test_samples_call_the_tools_with_arguments_of_the_right_types():
    space = TurnSpace([TOOL], seed=1)
    samples = [space.sample() for _ in range(60)]
    assert any(sample.text for sample in samples)
    called = [sample.tool_calls[0].arguments for sample in samples if sample.tool_calls]
    assert len(called) > 10
    for given_ in called:
        assert given_["depth"] in (5, 6)
        assert given_["how"] in ("slow", "fast")
        assert 0 <= given_["share"] < 1
        assert isinstance(given_["sure"], bool)
        assert isinstance(given_["where"][0], str)
        assert isinstance(given_["who"]["name"], str)
        assert given_["why"] is None


@pytest.mark.parametrize("make", [MessageSpace, TurnSpace, lambda seed: TurnSpace([TOOL], seed=seed)])
def test_the_seed_fixes_the_samples(make):
    one, two, three = make(seed=3), make(seed=3), make(seed=4)
    assert [one.sample() for _ in range(5)] == [two.sample() for _ in range(5)] != [three.sample() for _ in range(5)]


def test_spaces_are_equal_when_they_hold_the_same():
    assert MessageSpace() == MessageSpace()
    assert TurnSpace([TOOL]) == TurnSpace([TOOL]) != TurnSpace()
    assert hash(TurnSpace([TOOL])) == hash(TurnSpace([TOOL]))
    assert "dig" in repr(TurnSpace([TOOL]))
    assert not MessageSpace().is_np_flattenable


def test_vector_environments_work():
    vector = gymnasium.make_vec("agar.envs.registry:Guess-v0", 3, vectorization_mode="sync")
    observations, _ = vector.reset(seed=1)
    assert len(observations) == 3
    _, rewards, terminated, _, _ = vector.step(vector.action_space.sample())
    assert rewards.shape == terminated.shape == (3,)
    vector.close()
