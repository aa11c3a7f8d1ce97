import gc
import json
import random
import tracemalloc
from dataclasses import replace

import httpx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agar.ledger.toy import ToyEngine
from agar.rollout.gateway.call import BadRequest, ModelCall, Reply
from agar.rollout.gateway.chat_completions import CHAT_COMPLETIONS
from agar.rollout.gateway.server import Gateway
from agar.rollout.gateway.translation import MessageCache, ToolCache
from agar.types import Sampling, ToolCall, Turn

TOKENS = 32_768
MEGABYTES = 2.0


async def test_a_session_of_32k_tokens_holds_less_than_two_megabytes(family):
    """As programs play it: the whole history comes with every call, as JSON, and every text is new."""
    draw = random.Random(1)
    tokens = 0

    def reply(prompt):
        nonlocal tokens
        said = family.tokenizer.encode(f"box {draw.randrange(10**9)} {'looks around ' * 40}")
        ids = np.append(said, family.stop_ids[0])
        tokens = len(prompt) + len(ids)
        return ids

    async def play(session, tools):
        history = [{"role": "user", "content": "Start."}]
        while tokens < TOKENS:
            body = json.dumps({"model": "main", "messages": history}).encode()
            answer = await session.call(CHAT_COMPLETIONS.read(body, tools, session.messages))
            said = json.loads(CHAT_COMPLETIONS.write(answer, "main", session.messages))
            result = f"{draw.randrange(10**9)} {'says what it has found there ' * 60}"
            history += [said["choices"][0]["message"], {"role": "user", "content": result}]

    engine = ToyEngine(reply)
    session = Gateway(engines={"main": engine}, families={"main": family}).open(
        policy="main", sampling=Sampling(max_tokens=4096)
    )
    tracemalloc.start()
    try:
        await play(session, ToolCache())
        engine.prompts.clear()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(session.seal().nodes) > 32
    assert held < MEGABYTES * 1e6


def read_all(bodies, *, cached):
    """Each call, or why it was refused, as one session reads them one after the other, or as if each were the first."""
    tools, messages, found = ToolCache(), MessageCache(), []
    for body in bodies:
        if not cached:
            tools, messages = ToolCache(), MessageCache()
        try:
            found.append(CHAT_COMPLETIONS.read(json.dumps(body).encode(), tools, messages))
        except BadRequest as error:
            found.append((str(error), error.param, error.code))
    return found


CALL = {"id": "a", "type": "function", "function": {"name": "sh", "arguments": '{"command": "ls"}'}}
ROWS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Start."},
    {"role": "user", "content": [{"type": "text", "text": "Start."}]},
    {"role": "user", "content": "Start.", "name": "someone"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": "1"},
    {"role": "tool", "tool_call_id": 1, "content": "1"},
    {"role": "nobody", "content": "Start."},
]
TOOLS = [
    {"type": "function", "function": {"name": "sh", "parameters": {"type": "object", "default": value}}}
    for value in (1, 1.0, True)
]
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from([None, 1, 2, 1.0, True, 0]),
        "stream": st.sampled_from([None, True, False, 1]),
        "stop": st.sampled_from(["x", ["x"], [], ""]),
        "logprobs": st.sampled_from([True, 1, None]),
        "temperature": st.sampled_from([0, 0.0, 1, "1"]),
        "seed": st.sampled_from([1, True]),
        "tools": st.sampled_from([None, [], TOOLS[:1], TOOLS[1:2], TOOLS[2:], TOOLS, [{}]]),
        "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "function", "function": {"name": "sh"}}]),
        "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}, {"type": "?"}]),
        "user": st.sampled_from(["a", {"deep": [1]}]),
        "messages": st.sampled_from([None, "Start.", {}]),
    },
)


@given(st.lists(st.sampled_from(ROWS), max_size=8), st.lists(st.tuples(ENVELOPES, st.integers(0, 8)), max_size=6))
def test_what_was_read_before_changes_nothing(rows, requests):
    """A session's calls repeat their history and all around it; whatever is kept of that, each is read as the first."""
    bodies = [{"messages": rows[:count], **envelope} for envelope, count in requests]
    bodies += bodies[-1:]  # once more, as it was
    kept, anew = read_all(bodies, cached=True), read_all(bodies, cached=False)
    assert kept == anew
    assert repr(kept) == repr(anew)  # where 1 and 1.0 and true are not the same


VALUES = st.sampled_from([None, "", "Start.", " ", "a", 1, True, [], {}, [{"type": "text", "text": "Start."}]])


def outcome_of(row):
    """What is read of a row, but for its fingerprint."""
    (read,) = read_all([{"messages": [row]}], cached=False)
    return replace(read, fingerprint=None) if isinstance(read, ModelCall) else read


@given(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "nobody", None, [], {}])},
        optional=dict.fromkeys(("content", "tool_call_id", "name", "reasoning", "refusal"), VALUES),
    )
)
@example({"role": "nobody", "content": "Start."})
@example({"role": "tool", "content": "Start.", "tool_call_id": "a", "name": "sh"})
@example({"role": "tool", "content": "Start.", "tool_call_id": 1})
def test_a_row_of_text_alone_is_read_as_any_other(row):
    """A field that holds nothing changes nothing, and keeps a row from being one of text alone."""
    assert repr(outcome_of(row)) == repr(outcome_of({**row, "x": None}))


@pytest.mark.parametrize("more", [{"tool_call_id": "a"}, {"tool_call_id": "a", "name": "sh"}, {"name": "sh"}])
def test_what_a_row_holds_beside_its_text_is_kept(more):
    role = "tool" if "tool_call_id" in more else "user"
    body = json.dumps({"messages": [{"role": role, "content": "1", **more}]}).encode()
    read = CHAT_COMPLETIONS.read(body, ToolCache(), MessageCache())
    assert read.unknown == ({"messages[0]": (0, {"name": "sh"})} if "name" in more else {})


TEXTS = st.text(alphabet='ab" \n\\é', max_size=4)
MADE = st.builds(
    ToolCall, id=TEXTS, name=TEXTS, arguments=st.dictionaries(TEXTS, st.integers(-9, 9) | st.booleans() | TEXTS)
)
TURNS = st.builds(
    Turn,
    text=TEXTS,
    reasoning=st.none() | TEXTS,
    tool_calls=st.lists(MADE, max_size=2).map(tuple),
    parse_error=st.none() | TEXTS,
)


@given(st.lists(TURNS, min_size=1, max_size=3))
def test_a_reply_that_comes_back_as_it_went_out_is_read_as_any_other(turns):
    said = [Reply(id="a", turn=turn, node=None, budget=None, prompt_tokens=0, created=0) for turn in turns]
    tools, messages = ToolCache(), MessageCache()
    written = json.loads(CHAT_COMPLETIONS.write(replace(said[0], others=tuple(said[1:])), "main", messages))
    body = json.dumps({"messages": [choice["message"] for choice in written["choices"]]}).encode()
    known = CHAT_COMPLETIONS.read(body, tools, messages)
    assert repr(known) == repr(CHAT_COMPLETIONS.read(body, tools, MessageCache()))
    for message, turn in zip(known.messages, turns, strict=True):
        assert [call.arguments for call in message.tool_calls] == [call.arguments for call in turn.tool_calls]


def test_a_reply_that_goes_out_again_is_held_once_and_stays_the_same_message():
    reply = Reply(id="a", turn=Turn(text="Well."), node=None, budget=None, prompt_tokens=0, created=0)
    tools, messages = ToolCache(), MessageCache()
    said = json.loads(CHAT_COMPLETIONS.write(reply, "main", messages))["choices"][0]["message"]
    body = json.dumps({"messages": [said]}).encode()
    held, first = messages.held_bytes, CHAT_COMPLETIONS.read(body, tools, messages)
    assert held == len(json.dumps(said, separators=(",", ":")))
    CHAT_COMPLETIONS.write(replace(reply, id="b"), "main", messages)
    assert messages.held_bytes == held
    again = CHAT_COMPLETIONS.read(json.dumps({"n": 1, "messages": [said]}).encode(), tools, messages)
    assert again.messages[0] is first.messages[0]


async def test_what_a_session_holds_is_bounded_beyond_its_budgets(gateway, sampling):
    session = gateway.open(policy="main", sampling=sampling, max_turns=1)
    headers, ids = {"authorization": f"Bearer {session.id}"}, []
    async with httpx.AsyncClient(base_url=gateway.base_url, headers=headers) as http:
        for number in range(20):
            said = (await http.post("/responses", json={"model": "m", "input": f"{number} {'x' * 50_000}"})).json()
            ids.append(said["id"])
        held = session.messages
        assert len(held._remembered) == len(held._replies) == 2
        assert [(await http.get(f"/responses/{id}")).status_code for id in ids] == [200, *[404] * 18, 200]
    assert len(session.seal().nodes) == 1
