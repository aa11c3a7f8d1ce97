"""A body that goes on from another is read as if it were the first."""

import hashlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agar.rollout.gateway.call import BadRequest, ModelCall
from agar.rollout.gateway.chat_completions import CHAT_COMPLETIONS
from agar.rollout.gateway.continued import Bodies
from agar.rollout.gateway.translation import MessageCache, ToolCache
from agar.types import Message

ASK = {"role": "user", "content": "Start."}
CALL = {"id": "a", "type": "function", "function": {"name": "sh", "arguments": '{"command": "ls ]"}'}}
ROWS = [
    ASK,
    {"role": "system", "content": 'Say "messages":[] and }],'},
    {"role": "developer", "content": None},
    {"role": "user", "content": [{"type": "text", "text": "é"}]},
    {"role": "user", "content": "Start.", "name": "someone"},
    {"role": "user", "content": "Start.", "messages": [ASK]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "assistant", "content": "", "reasoning_content": " "},
    {"role": "assistant", "content": "Well."},
    {"role": "tool", "tool_call_id": "a", "content": "1"},
    {"role": "tool", "tool_call_id": "a", "content": "1", "name": "sh"},
    {"role": "tool", "tool_call_id": 1, "content": "1"},
    {"role": ["user"], "content": "Start."},
    {"role": "nobody", "content": "Start."},
]
FIELDS = {
    "model": "main",
    "tools": [{"type": "function", "function": {"name": "sh", "parameters": {"enum": ["]", {}]}}}],
    "stop": ["]", "x"],
    "user": 'a"messages":[',
    "metadata": {"messages": []},
    "temperature": 0.5,
    "stream": True,
}
SPELT = [
    {},
    {"separators": (",", ":")},
    {"indent": 1},
    {"ensure_ascii": False},
]
PIECES = [
    *(b',]"{}[\\: '[at : at + 1] for at in range(9)),
    b"\n",
    b"\xff",
    b"\xc3",
    b"null",
    b"1",
    b".5",
    b"\\u005d",
    b',{"role":"user","content":"More."}',
    b'],"messages":[{"role":"user","content":"Other."}',
    b'],"me\\u0073sages":[',
    b'],"n":2,"x":[',
    b"],[",
]


def read(body, tools, messages):
    try:
        return CHAT_COMPLETIONS.read(body, tools, messages)
    except BadRequest as error:
        return str(error), error.param, error.code


def spell(rows, before, behind, spelling):
    fields = {**{name: FIELDS[name] for name in before}, "messages": rows}
    fields |= {name: FIELDS[name] for name in behind if name not in before}
    return json.dumps(fields, **spelling).encode()


@st.composite
def conversations(draw):
    """Bodies of a conversation or two, most of them going on from one before, some of them damaged."""
    names = st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True)
    frames = draw(st.lists(st.tuples(names, names, st.sampled_from(SPELT)), min_size=1, max_size=2))
    rows = draw(st.lists(st.sampled_from(ROWS[: draw(st.integers(1, len(ROWS)))]), min_size=1, max_size=8))
    bodies = []
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.integers(1, len(rows)))
        body = spell(rows[:count], *draw(st.sampled_from(frames)))
        if draw(st.integers(0, 3)) == 0:
            at, cut = draw(st.integers(0, len(body))), draw(st.integers(0, 3))
            body = body[:at] + draw(st.sampled_from(PIECES)) + body[at + cut :]
        bodies.append(body)
    return bodies


@given(conversations())
@example([b'{"messages":[%b]}' % b",".join([b'{"role":"user","content":"]"}'] * count) for count in (1, 2, 4)])
def test_what_was_read_before_changes_nothing(bodies):
    tools, messages = ToolCache(), MessageCache()
    for body in bodies:
        kept, anew = read(body, tools, messages), read(body, ToolCache(), MessageCache())
        assert kept == anew
        assert repr(kept) == repr(anew)  # where 1 and 1.0 and true are not the same


ONE = b'{"role":"user","content":"]"}'
BEGIN, END = b'{"n":1,"messages":[' + ONE, b'],"user":"a","stop":["]"]}'


def agrees(bodies, last):
    """Whether the last body is read after the others as it is without them."""
    tools, messages = ToolCache(), MessageCache()
    for body in bodies:
        assert isinstance(read(body, tools, messages), ModelCall)
    kept, anew = read(last, tools, messages), read(last, ToolCache(), MessageCache())
    return (kept, repr(kept)) == (anew, repr(anew))


@given(st.integers(0, len(BEGIN + ONE + END)), st.lists(st.sampled_from(PIECES), min_size=1, max_size=4), st.booleans())
def test_text_put_in_anywhere_is_read_as_in_a_body_of_its_own(at, pieces, divided):
    bodies = [BEGIN + END, BEGIN + b"," + ONE + END] if divided else [BEGIN + END]
    assert agrees(bodies, bodies[-1][:at] + b"".join(pieces) + bodies[-1][at:])


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("then", [b"", b"," + ONE])
def test_text_put_in_behind_the_rows_is_read_as_in_a_body_of_its_own(piece, then, divided):
    begin = BEGIN + b"," + ONE if divided else BEGIN
    bodies = [BEGIN + END, begin + END]
    assert agrees(bodies, begin + piece + then + END)
    assert agrees(bodies, begin + then + piece + END)


@pytest.mark.parametrize("depth", [60, 70, 250, 260, 1018, 1019, 1020, 1021, 1022, 1023])
def test_a_row_may_be_nested_as_deep_as_in_a_body_of_its_own(depth):
    deep = b'{"role":"user","content":"Deep.","x":%b}' % (b"[" * depth + b"]" * depth)
    assert agrees([BEGIN + END, BEGIN + b"," + ONE + END], BEGIN + b"," + ONE + b"," + deep + END)


def test_a_list_that_is_not_of_the_rows_may_grow():
    part, other = b'{"type":"text","text":"a"}', b'{"type":"text","text":"b","role":"user","content":"More."}'
    before, behind = b'{"messages":[{"role":"user","content":[' + part, b"]}]}"
    assert agrees([before + behind], before + b"," + other + behind)
    before, behind = b'{"messages":[' + ONE, b'],"messages":[' + ONE + b"]}"
    assert agrees([before + behind], before + b"," + ONE + behind)
    before, behind = b'{"messages":[' + ONE, b" ," + ONE + b"]}"
    assert agrees([before + behind], before + b"," + ONE + behind)


def test_a_body_that_is_cut_off_is_none_that_was_read():
    row = b'{"role":"user","content":[]}'
    one, two = b'{"messages":[' + row, b'{"messages":[' + row + b"," + row
    assert agrees([one + b"]}", two + b"]}"], two)


def bodies_of(rows, count, **spelling):
    return [spell(rows[: at + 1], ["stop"], ["tools", "metadata"], spelling) for at in range(count)]


@pytest.mark.parametrize("spelling", SPELT)
def test_only_what_is_new_is_read(spelling):
    rows = [{"role": "user", "content": f"{number} ]"} for number in range(6)]
    tools, messages = ToolCache(), MessageCache()
    first, *others = bodies_of(rows, 6, **spelling)
    assert messages.chats.continued(first) is None
    read(first, tools, messages)
    for number, body in enumerate(others, 1):
        found = messages.chats.continued(body)
        assert found is not None
        assert (found.before.rows, list(found.rows)) == (number, [rows[number]])
        assert found.fingerprint == hashlib.blake2b(body, digest_size=16, person=b"chat").digest()
        before, call = found.before.call, read(body, tools, messages)
        assert all(one is other for one, other in zip(before.messages, call.messages, strict=False))
        assert call.messages[number:] == (Message(role="user", content=f"{number} ]"),)


def test_conversations_side_by_side_are_each_gone_on_from():
    tools, messages = ToolCache(), MessageCache()
    talks = [[{"role": "system", "content": f"You are {name}."}, *[ASK] * 4] for name in "abcd"]
    for count in range(1, 5):
        for talk in talks:
            body = spell(talk[:count], [], ["model"], {})
            assert (messages.chats.continued(body) is None) == (count == 1)
            read(body, tools, messages)


def test_a_repeated_body_adds_nothing():
    tools, messages = ToolCache(), MessageCache()
    for body in bodies_of([ASK] * 2, 2):
        last = read(body, tools, messages)
    found = messages.chats.continued(body)
    assert found is not None
    assert not found.rows
    assert read(body, tools, messages) == last


def test_a_fault_in_a_new_row_is_told_with_its_place():
    tools, messages = ToolCache(), MessageCache()
    *good, bad = bodies_of([ASK, ASK, {"role": "tool", "content": "1"}], 3)
    for body in good:
        read(body, tools, messages)
    assert read(bad, tools, messages)[1] == "messages[2].tool_call_id"


def test_what_is_kept_of_bodies_is_bounded():
    bodies = Bodies("messages", dialect=b"chat", limit_bytes=1000)
    call = ModelCall(messages=(Message(role="user", content=""),))
    for number in range(20):
        bodies.keep(b"%03d" % number * 80, 1, call)
        assert bodies.held_bytes <= 1000
    bodies.keep(b"1" * 1001, 1, call)
    assert bodies.held_bytes == 960
    for _ in range(20):
        bodies.keep(b"1", 1, call)
    assert bodies.held_bytes == 4
