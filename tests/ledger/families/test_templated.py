"""Every family over generated conversations: bridges are prefixes and the template's, parse undoes reply."""

import copy
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.families.conftest import HERE, TOKENS, write_model

from agar.errors import ConfigError, LedgerError
from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.families.conversations import TOOLS, message_rows, tool_rows
from agar.ledger.families.llama import Llama3
from agar.ledger.families.model import ChatModel
from agar.ledger.families.qwen import Qwen25
from agar.ledger.forest import Forest
from agar.ledger.node import Edge
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace
from agar.types import (
    Finish,
    GroupId,
    ImagePart,
    Message,
    Outcome,
    Reward,
    Sampled,
    Sampling,
    TaskRow,
    ToolCall,
)

FAMILIES = [name for name in TOKENS if name not in {"glm-4.6", "deepseek-r1-0528", "qwen3.5-nothink"}]

words = st.text(st.sampled_from("ab é<>|/_\"'{}[]:,0159\n\\"), max_size=20).map(str.strip)
said = words.filter(lambda text: not text.startswith("{"))  # a Llama reply that begins so is meant as a call
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=4,
)
looks = st.fixed_dictionaries(
    {},
    optional={
        "at": words,
        "times": st.integers(-9, 9),
        "sharp": st.booleans(),
        "inside": st.dictionaries(st.sampled_from("xyz"), values, max_size=2),
    },
)
calls = st.lists(
    st.one_of(looks.map(lambda arguments: ("look", arguments)), st.just(("rest", {}))), min_size=1, max_size=2
).map(lambda some: tuple(ToolCall(id=f"c{i}", name=name, arguments=args) for i, (name, args) in enumerate(some)))


@st.composite
def turns(draw, family):
    """An assistant message that the family can say, and what may come after it."""
    some = draw(st.just(()) | calls) if family.template.takes_tools or family.calls else ()
    if family.name == "llama3":
        some = some[:1]
    text = draw(said) if not some or family.name != "llama3" else ""
    reasoning = draw(st.none() | words.filter(bool)) if family.thinks and family.name != "deepseek-v3.1" else None
    message = Message(role="assistant", content=text, tool_calls=some, reasoning=reasoning)
    if some:
        return message, [Message(role="tool", content=draw(words), tool_call_id=call.id) for call in some]
    return message, [Message(role="user", content=draw(words))]


@st.composite
def conversations(draw, family):
    messages = [Message(role="system", content=draw(words))] if draw(st.booleans()) else []
    messages.append(Message(role="user", content=draw(words)))
    for _ in range(draw(st.integers(1, 3))):
        message, new = draw(turns(family))
        messages += [message, *new]
    return messages


def values_of(some):
    return [(call.name, dict(call.arguments)) for call in some]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rollout_is_a_chain_of_prefixes_and_every_reply_reads_back(family_of, name):
    family = family_of(name)
    tools = TOOLS if family.template.takes_tools else ()

    @settings(max_examples=40)
    @given(conversations(family))
    def check(messages):
        start = next(i for i, message in enumerate(messages) if message.role == "assistant")
        known = family.render(messages[:start], tools)
        while start < len(messages):
            message = messages[start]
            reply = family.reply(message, prompt=known)
            turn = family.parse(reply, TOOLS, prompt=known)
            assert (turn.text, turn.reasoning, turn.finish) == (message.text, message.reasoning, Finish.STOP)
            assert values_of(turn.tool_calls) == values_of(message.tool_calls), turn.parse_error
            assert turn.parse_error is None
            end = next((i for i in range(start + 1, len(messages)) if messages[i].role == "assistant"), len(messages))
            sampled = np.concatenate([known, reply])
            bridge = family.bridge(sampled, Finish.STOP, messages[start + 1 : end])
            cut = family.bridge(sampled[:-1], Finish.LENGTH, messages[start + 1 : end])
            assert cut.tolist() == [int(reply[-1]), *bridge.tolist()]
            known = np.concatenate([sampled, bridge])
            assert known[: len(sampled)].tolist() == sampled.tolist()
            start = end

    check()


@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_and_bridges_are_the_templates_own_over_generated_conversations(
    family_of, model_of, reference_of, name
):
    family, reference = family_of(name), reference_of(model_of(name))
    tools = TOOLS if family.template.takes_tools else ()

    @settings(max_examples=25)
    @given(conversations(family))
    def check(messages):
        expected = reference(message_rows(messages, family.wire), tool_rows(tools), True)
        assert family.render(messages, tools).tolist() == expected
        last = max(i for i, message in enumerate(messages) if message.role == "assistant")
        prompt = family.render(messages[:last], tools)
        sampled = np.concatenate([prompt, family.reply(messages[last], prompt=prompt)])
        bridge = family.bridge(sampled, Finish.STOP, messages[last + 1 :]).tolist()
        assert expected[-len(bridge) :] == bridge

    check()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_transcript_is_a_rollout(family_of, name):
    family = family_of(name)
    tools = TOOLS if family.template.takes_tools else ()

    @settings(max_examples=15)
    @given(conversations(family))
    def check(messages):
        ids, mask = family.transcript(messages, tools)
        start = next(i for i, message in enumerate(messages) if message.role == "assistant")
        known = family.render(messages[:start], tools).tolist()
        expected = [False] * len(known)
        while start < len(messages):
            reply = family.reply(messages[start], prompt=np.array(known, np.int32)).tolist()
            end = next((i for i in range(start + 1, len(messages)) if messages[i].role == "assistant"), len(messages))
            known += reply
            expected += [True] * len(reply)
            if end < len(messages):
                bridge = family.bridge(np.array(known, np.int32), Finish.STOP, messages[start + 1 : end]).tolist()
                known += bridge
                expected += [False] * len(bridge)
            start = end
        assert ids[: len(known)].tolist() == known
        assert mask.tolist() == expected + [False] * (len(ids) - len(known))

    check()


def test_a_transcript_across_rewritten_history_is_refused(family_of):
    messages = [
        Message(role="user", content="a"),
        Message(role="assistant", content="b"),
        Message(role="system", content="c"),
        Message(role="assistant", content="d"),
    ]
    with pytest.raises(LedgerError, match="rewrites history after message 1"):
        family_of("deepseek-v3").transcript(messages)


QUESTION, RESULT = Message(role="user", content="Go on."), Message(role="tool", content="1", tool_call_id="c")


@pytest.mark.parametrize(
    ("name", "after_question", "after_result"),
    [
        ("qwen2.5", False, False),
        ("qwen3", True, False),
        ("qwen3.5-think", True, False),
        ("qwen3.6", True, False),
        ("glm-4.5", True, False),
        ("glm-4.7", True, False),
        ("deepseek-r1", True, True),
        ("llama-layout", False, False),
    ],
)
def test_families_say_when_their_template_strips_reasoning(family_of, name, after_question, after_result):
    family = family_of(name)
    assert family.strips_reasoning([QUESTION]) is after_question
    assert family.strips_reasoning([RESULT]) is after_result


def test_what_a_template_has_no_place_for_is_refused(family_of):
    with pytest.raises(LedgerError, match="no place for tools: describe them"):
        family_of("deepseek-r1").render([QUESTION], TOOLS)
    with pytest.raises(LedgerError, match="no place for tool calls"):
        family_of("chatml-plain").render([Message(role="assistant", tool_calls=(ToolCall(id="c", name="t"),))])
    image = Message(role="user", content=(ImagePart(url="data:,"),))
    with pytest.raises(LedgerError, match="a user message holds an image: the qwen3 family renders text only"):
        family_of("qwen3").render([image])
    with pytest.raises(LedgerError, match="no place for reasoning"):
        family_of("qwen2.5").reply(Message(role="assistant", content="a", reasoning="b"))
    with pytest.raises(LedgerError, match="closed the reasoning"):
        family_of("qwen3", thinking=False).reply(Message(role="assistant", content="a", reasoning="b"))


def test_a_refusal_of_the_template_says_why(family_of):
    middle = [QUESTION, Message(role="assistant", content="a"), Message(role="system", content="b"), QUESTION]
    with pytest.raises(LedgerError, match="ends in user, assistant, system, user: System message must be at the beg"):
        family_of("qwen3.5-think").render(middle)


def test_a_tokenizer_of_another_family_is_refused(model_of):
    with pytest.raises(ConfigError, match=r"the qwen2\.5 family needs the added tokens \['<\|im_start\|>'"):
        Qwen25(ChatModel.load(model_of("glm-4.5")))


def test_the_switch_for_reasoning_reaches_the_template(family_of):
    on, off = (family_of("qwen3.5-think", thinking=thinking).opening for thinking in (True, False))
    assert on.endswith("<think>\n")
    assert off.endswith("<think>\n\n</think>\n\n")


results = st.lists(
    st.lists(
        st.sampled_from(
            [
                "<|im_end|>",
                "<|im_",
                "end|>",
                "</tool_response>",
                "</think>",
                "<tool_call>",
                "{{ 0 }}",
                "\ufdd0",
                "\ufdd3",
            ]
        )
        | st.text(max_size=4),
        max_size=4,
    ).map("".join),
    min_size=1,
    max_size=10,
)


@pytest.mark.parametrize("name", FAMILIES)
def test_results_between_what_stands_around_them_are_as_the_template_writes_them(family_of, name):
    family = family_of(name)
    rendering = copy.copy(family)
    rendering.plain_results = False
    previous = np.concatenate([family.render([QUESTION]), np.array(family.stop_ids[:1], np.int32)])

    def bridge_of(family, new):
        try:
            bridge = family.bridge(previous, Finish.STOP, new)
        except LedgerError as error:
            return str(error)
        return None if bridge is None else bridge.tolist()

    @settings(max_examples=40)
    @given(results)
    def check(texts):
        new = [Message(role="tool", content=text, tool_call_id=f"c{at}") for at, text in enumerate(texts)]
        assert bridge_of(family, new) == bridge_of(rendering, new)

    check()


def test_a_template_is_run_once_for_results_that_it_writes_as_they_are(family_of):
    family = copy.copy(family_of("qwen3"))
    family._frames, written = {}, []
    family.template = CountingTemplate(family.template, written)
    previous = family.render([QUESTION])
    for text in ("a", " b\n", ""):
        family.bridge(previous, Finish.LENGTH, [Message(role="tool", content=text, tool_call_id="c")])
    assert len(written) == 3  # the first question; slots and an awkward text in the place of the result
    trimming = copy.copy(family_of("qwen3.5-think"))
    trimming.plain_results = True  # wrongly declared: an awkward text shows it
    new = [Message(role="tool", content=" b\n", tool_call_id="c")]
    assert (
        trimming.bridge(previous, Finish.LENGTH, new).tolist()
        == family_of("qwen3.5-think").bridge(previous, Finish.LENGTH, new).tolist()
    )


class CountingTemplate:
    def __init__(self, template, written):
        self._template, self._written = template, written

    def render(self, rows, tools=(), *, generation):
        self._written.append(rows)
        return self._template.render(rows, tools, generation=generation)

    def __getattr__(self, name):
        return getattr(self._template, name)


def test_a_conversation_keeps_its_date_past_midnight(model_of, tmp_path, monkeypatch):
    class Clock(date):
        day = 26

        @classmethod
        def today(cls):
            return date(2024, 7, cls.day)

    monkeypatch.setattr("agar.ledger.families.model.date", Clock)
    template = (HERE / "templates" / "llama-layout.jinja").read_text("utf-8")
    dated = template.replace("'Today Date: 26 Jul 2024\\n\\n'", "'Today Date: ' + strftime_now('%d %b %Y') + '\\n\\n'")
    assert dated != template
    model = write_model(tmp_path / "model", dated, TOKENS["llama-layout"])
    family, undated = Llama3(ChatModel.load(model)), Llama3(ChatModel.load(model_of("llama-layout")))
    asked, answer = Message(role="user", content="What is in it?"), Message(role="assistant", content="Gold.")
    forest = Forest(family)
    for history in ([asked], [asked, answer, asked]):
        plan = forest.plan(history)
        ids = family.reply(answer, prompt=plan.prompt)
        assert ids.tolist() == undated.reply(answer, prompt=plan.prompt).tolist()
        sampled = Sampled.restore(
            token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), policy_versions=np.zeros(len(ids)),
            finish=Finish.STOP,
        )  # fmt: skip
        forest.commit(plan, sampled, family.parse(ids), sampling=Sampling())
        Clock.day += 1
    assert [node.edge for node in forest.nodes] == [Edge.FIRST, Edge.EXTEND]
    assert forest.nodes[0].delta.tolist() == undated.render([asked]).tolist()
    trace = Trace(
        trajectory="t0", group=GroupId(task="k", ordinal=0), role="agent", policy="main", task=TaskRow(key="k"),
        nodes=tuple(forest.nodes), reward=Reward(total=1.0), outcome=Outcome.COMPLETED,
    )  # fmt: skip
    again = Trace.load(trace.dump())
    for known in (family, Llama3(ChatModel.load(model, today=date(2024, 7, 26)))):
        audit([again], emit(again), families={"main": known}).raise_if_broken()
    of_today = audit([again], emit(again), families={"main": Llama3(ChatModel.load(model))})
    assert [each.invariant for each in of_today.violations] == ["I6"]
