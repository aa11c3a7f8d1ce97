"""Every family in a session: calls, results, questions, a client that forgets the reasoning; and the strict audit."""

import json
from dataclasses import replace

import httpx
import pytest
from tests.ledger.families.conftest import HERE, TOKENS, write_model
from tests.rollout.gateway.conftest import trace_of

from agar.ledger.audit import audit
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import emit
from agar.ledger.families import family_for
from agar.ledger.families.conversations import TOOLS
from agar.ledger.families.llama import Llama3
from agar.ledger.families.model import ChatModel
from agar.ledger.node import Divergence, Edge
from agar.ledger.toy import ToyEngine
from agar.ledger.trace import Trace
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling, ToolCall

LOOK = ToolCall(id="", name="look", arguments={"at": "the <|im_end|> box", "times": 2})
ASK, AGAIN = Message(role="user", content="What is in it?"), Message(role="user", content="Sure?")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The family of a template; `NAME changed` is the capture path over it."""
    found = {}

    def make(name):
        if name not in found:
            base = name.removesuffix(" changed")
            text = (HERE / "templates" / f"{base}.jinja").read_text("utf-8")
            model = write_model(tmp_path_factory.mktemp("model"), text, TOKENS[base])
            writer = Llama3(ChatModel.load(model)) if base == "llama-layout" else family_for(model)
            found[name] = writer, writer
            if base != name:
                (model / "chat_template.jinja").write_text(text + "{#- changed -#}", "utf-8")
                ends = {"eos_token_id": list(writer.stop_ids)}
                (model / "generation_config.json").write_text(json.dumps(ends), "utf-8")
                found[name] = family_for(model), writer
        return found[name]

    return make


KEPT = object()
"""The reasoning is sent back as it came."""


async def play(family, writer, *, record=None, reasoning=KEPT):
    """Two questions and a tool's result; `writer` says what the model samples; `reasoning` is sent back instead."""
    thinks = writer.thinks and not writer.opening.rstrip().endswith("</think>")
    said = [
        Message(role="assistant", tool_calls=(LOOK,) if writer.calls or writer.name == "llama3" else ()),
        Message(role="assistant", content="Gold.", reasoning="It shines." if thinks else None),
        Message(role="assistant", content="Yes.", reasoning="I saw it." if thinks else None),
    ]
    engine = ToyEngine(lambda prompt: writer.reply(said[len(engine.prompts) - 1], prompt=prompt))
    tools = TOOLS if writer.template.takes_tools else ()
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=512), record=record)
        messages, turns = [ASK], []
        for _ in said:
            turns.append(await session.chat(messages, tools=tools))
            reply = turns[-1].message()
            if reasoning is not KEPT:
                reply = replace(reply, reasoning=reasoning)
            messages.append(reply)
            results = [Message(role="tool", content="gold\n", tool_call_id=call.id) for call in reply.tool_calls]
            messages += results or [AGAIN]
        sealed = session.seal()
    trace = trace_of(sealed)
    rows = emit(trace)
    report = audit([trace], rows, families={"main": family})
    report.raise_if_broken()
    assert report.trained_tokens == report.sampled_tokens
    return trace, rows, turns


TEXT = [name for name in TOKENS if not name.endswith("-vl")]


@pytest.mark.parametrize("name", TEXT)
async def test_a_conversation_is_one_row_and_keeps_every_invariant(made, name):
    trace, rows, turns = await play(*made(name))
    assert [node.edge for node in trace.nodes] == [Edge.FIRST, Edge.EXTEND, Edge.EXTEND]
    assert len(rows) == 1
    if turns[0].tool_calls:
        assert [dict(call.arguments) for call in turns[0].tool_calls] == [LOOK.arguments]
    assert (turns[1].text, turns[2].text) == ("Gold.", "Yes.")


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5-think", "glm-4.5", "glm-4.7", "deepseek-r1"])
@pytest.mark.parametrize("reasoning", [None, "", " \n"])
async def test_a_client_that_forgets_the_reasoning_still_gives_one_row(made, name, reasoning):
    trace, rows, turns = await play(*made(name), reasoning=reasoning)
    assert turns[1].reasoning == "It shines."
    assert {each.kind for each in trace.divergences} == {Divergence.REASONING_DROPPED}
    assert len(rows) == 1


@pytest.mark.parametrize("name", ["qwen3", "glm-4.5", "deepseek-r1"])
async def test_history_as_sent_is_what_the_template_writes(made, name):
    family, writer = made(name)
    trace, rows, _ = await play(family, writer, record=RecordPolicy(history="as_sent"))
    assert trace.nodes[2].edge is Edge.UNBRIDGED
    assert "It shines." not in family.tokenizer.decode(trace.nodes[2].delta)
    assert len(rows) == 2


@pytest.mark.parametrize("name", ["qwen2.5 changed", "qwen3 changed", "glm-4.5 changed"])
async def test_the_capture_path_keeps_every_invariant_too(made, name):
    family, writer = made(name)
    assert family.name == "capture"
    trace, rows, turns = await play(family, writer)
    assert turns[1].text == "Gold."
    if name.startswith("qwen"):
        assert [dict(call.arguments) for call in turns[0].tool_calls] == [LOOK.arguments]
    assert {node.edge for node in trace.nodes[1:]} <= {Edge.EXTEND, Edge.UNBRIDGED, Edge.REWRITTEN}
    assert 1 <= len(rows) <= 3


async def test_an_argument_that_no_json_can_hold_reaches_the_client_as_the_text_it_is(made):
    family, _ = made("qwen3.5-think")
    said = '<tool_call>\n<function=look>\n<parameter=at>\n["\\ud800"]\n</parameter>\n</function>\n</tool_call>'
    engine = ToyEngine(lambda _: [*family.marking.encode("</think>" + said), family.stop_ids[0]])
    schema = {"type": "object", "properties": {"at": {"type": "array", "items": {"type": "string"}}}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": schema}}]
    async with Gateway(engines={"main": engine}, families={"main": family}) as gateway:
        session = gateway.open(policy="main", sampling=Sampling(max_tokens=512))
        async with httpx.AsyncClient() as http:
            answer = await http.post(
                f"{session.base_url}/chat/completions",
                headers={"authorization": f"Bearer {session.id}"},
                json={"model": "main", "messages": [{"role": "user", "content": "Look."}], "tools": tools},
            )
        trace = trace_of(session.seal())
    (call,) = answer.raise_for_status().json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"at": '["\\ud800"]'}
    assert Trace.load(trace.dump()).dump() == trace.dump()
