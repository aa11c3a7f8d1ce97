import json
import shutil

import numpy as np
import pytest
from tests.ledger.families.conftest import QWEN, QWEN_MARKS, TOKENS, write_model

from agar.errors import ConfigError, LedgerError
from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.families import family_for
from agar.ledger.families.conversations import CONVERSATIONS, message_rows, tool_rows
from agar.ledger.forest import Forest
from agar.ledger.node import Edge
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow

KEEPS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls|tojson }}{% endif %}<|im_end|>
{% endfor %}{% if tools %}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Nobody's template; a turn in history is what was sampled."""
USER, ASSISTANT = Message(role="user", content="What is in the box?"), Message(role="assistant", content="Gold.")


@pytest.fixture(scope="module")
def keeps(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("keeps"), KEEPS, (*QWEN, *QWEN_MARKS))


@pytest.mark.parametrize("name", ["qwen3", "glm-4.7", "deepseek-v3.1"])
def test_prompts_are_the_templates_own(model_of, reference_of, tmp_path, name):
    directory = shutil.copytree(model_of(name), tmp_path / "model")
    template = directory / "chat_template.jinja"
    template.write_text(template.read_text("utf-8") + "{#- mine -#}", "utf-8")
    family, reference = family_for(directory), reference_of(directory)
    assert family.name == "capture"
    wire = "json" if name.startswith("deepseek") else "object"
    compared = 0
    for conversation in CONVERSATIONS:
        tools = () if name.startswith("deepseek") else conversation.tools
        expected = reference(message_rows(conversation.messages, wire), tool_rows(tools), True)
        assert family.render(conversation.messages, tools).tolist() == expected, conversation.name
        compared += 1
    assert compared > 10


def play(family, messages, replies, *, split=False):
    """The trace of a conversation whose replies are given as text; `split` samples them letter by letter."""
    forest, sent = Forest(family), list(messages)
    for reply in replies:
        plan = forest.plan(sent)
        letters = [i for c in reply for i in family.tokenizer.ids_of(c)] if split else family.tokenizer.ids_of(reply)
        ids = np.array([*letters, family.stop_ids[0]], np.int32)
        sampled = Sampled.restore(
            token_ids=ids,
            logprobs=hash_logprobs(plan.prompt, ids),
            policy_versions=np.zeros(len(ids)),
            finish=Finish.STOP,
        )
        turn = family.parse(ids, prompt=plan.prompt)
        forest.commit(plan, sampled, turn, sampling=Sampling())
        sent += [turn.message(), USER]
    return Trace(
        trajectory="t",
        group=GroupId(task="k", ordinal=0),
        role="agent",
        policy="main",
        task=TaskRow(key="k"),
        nodes=tuple(forest.nodes),
        divergences=tuple(forest.differences),
        reward=Reward(total=1.0),
        outcome=Outcome.COMPLETED,
    )


def test_a_template_that_keeps_turns_as_sampled_gives_one_row(keeps):
    trace = play(family_for(keeps), [USER], ["Gold.", "Sure.", "Yes."])
    assert [node.edge for node in trace.nodes] == [Edge.FIRST, Edge.EXTEND, Edge.EXTEND]
    (row,) = emit(trace)
    assert audit([trace], [row]).ok


def test_what_was_not_sampled_canonically_gives_a_row_for_every_call_and_trains_all_of_it(keeps):
    trace = play(family_for(keeps), [USER], ["silver", "silver", "silver"], split=True)
    assert [node.edge for node in trace.nodes] == [Edge.FIRST, Edge.UNBRIDGED, Edge.UNBRIDGED]
    rows = emit(trace)
    report = audit([trace], rows)
    assert report.ok, report.violations
    assert len(rows) == 3
    assert report.trained_tokens == report.sampled_tokens


def test_replies_are_read_by_the_tokenizers_marks(keeps):
    family = family_for(keeps)
    text = '<think>hm</think>So. <tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>'
    ids = [*family.tokenizer.encode(text, special=True).tolist(), family.stop_ids[0]]
    turn = family.parse(np.array(ids, np.int32))
    assert (turn.text, turn.reasoning, turn.finish) == ("So.", "hm", Finish.STOP)
    assert [(call.name, dict(call.arguments)) for call in turn.tool_calls] == [("look", {"at": "x"})]


def test_a_reply_may_begin_inside_its_reasoning(keeps):
    family = family_for(keeps)
    prompt = family.tokenizer.encode("<|im_start|>assistant\n<think>\n", special=True)
    ids = np.array(family.tokenizer.ids_of("still thinking"), np.int32)
    assert family.parse(ids, prompt=prompt).reasoning == "still thinking"
    assert family.parse(ids).text == "still thinking"


def test_without_marks_calls_and_reasoning_stay_text(tmp_path, keeps):
    said = '<think>hm</think> <tool_call>{"name": "look"}</tool_call>'
    for model in (write_model(tmp_path / "model", KEEPS, QWEN), keeps):
        family = family_for(model)
        turn = family.parse(family.tokenizer.encode(said))
        assert (turn.text, turn.reasoning, turn.tool_calls) == (said, None, ())


def test_control_tokens_in_foreign_text_stay_text(keeps):
    family = family_for(keeps)
    controls = set(family.tokenizer.added.values())
    evil, tame = (
        [i for i in family.render([Message(role="user", content=text)]).tolist() if i in controls]
        for text in (" ".join(TOKENS["qwen3"]), "plain")
    )
    assert evil == tame


def test_ends_are_what_the_model_says(keeps, tmp_path):
    directory = shutil.copytree(keeps, tmp_path / "model")
    family = family_for(directory)
    end = family.tokenizer.added["<|im_end|>"]
    assert family.stop_ids == (end,)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 7]}), "utf-8")
    assert family_for(directory).stop_ids == (end, 7)
    (directory / "tokenizer_config.json").write_text("{}", "utf-8")
    (directory / "generation_config.json").unlink()
    with pytest.raises(ConfigError, match="nothing says which token ends a reply"):
        family_for(directory)


def test_there_are_no_transcripts_and_no_bridges(keeps):
    family = family_for(keeps)
    with pytest.raises(LedgerError, match="register a family"):
        family.transcript([USER, ASSISTANT])
    assert family.bridge(family.render([USER]), Finish.STOP, [USER]) is None
    assert family.strips_reasoning([USER]) is False
