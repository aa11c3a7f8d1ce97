# ruff: noqa: RUF001 (DeepSeek's own tokens)
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agar.ledger.families.capture import Capture
from agar.ledger.families.chatml import TEMPLATE, ChatML
from agar.ledger.families.model import ChatModel
from agar.ledger.tokenizer import Tokenizer
from agar.ledger.toy import write_toy_model
from agar.types import ToolSpec

TOOLS = (ToolSpec(name="look"),)
SPELT = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<｜tool▁calls▁begin｜>", "<|python_tag|>")
PIECES = (
    *SPELT,
    '\n{"name": "look", "arguments": {"at": 1}}\n',
    '{"name": "look", "parameters": {}}',
    "look<arg_key>at</arg_key><arg_value>1</arg_value>",
    "function<｜tool▁sep｜>look\n```json\n{}\n```",
    *(" ", "\n\n", "gold", " silver", "ST", "OP", "STOP", "é", "\u2028", "👍", "\ufffd"),
    *("<", "<tool", "<th", "</", "ink>", "|>"),
)
FAMILIES = ("chatml-plain", "qwen2.5", "qwen3", "qwen3.5-nothink", "glm-4.5", "deepseek-v3", "llama-layout")
PROMPTS = (None, "<think>", "</think>", "<|im_start|>", "<｜tool▁outputs▁end｜>")


def told(family, ids, *, prompt=None, tools=TOOLS, holds=(), at_a_time=1):
    """What a reply has given after each step."""
    growing = family.grow(tools, prompt=prompt, holds=holds)
    if growing is None:
        return
    yield "", ""
    for at in range(0, len(ids), at_a_time):
        growing.feed(ids[at : at + at_a_time])
        yield "".join(growing.reasoning), "".join(growing.text)


@st.composite
def replies(draw, family):
    """Ids of marks, of ordinary text that spells marks, of pieces of characters, and of anything else."""
    added = family.tokenizer.added
    ids = []
    for _ in range(draw(st.integers(0, 12))):
        piece = draw(st.sampled_from(PIECES))
        kind = draw(st.integers(0, 9))
        if kind < 5:
            ids += family.tokenizer.encode(piece, special=kind < 4).tolist()
        elif kind == 5:
            ids += [family.tokenizer.encode(chr(0x21)).tolist()[0], *draw(st.lists(st.integers(0, 255), max_size=3))]
        elif kind == 6:
            ids += [i for byte in piece.encode() for i in byte_ids(family, byte)]
        elif kind == 7 and added:
            ids.append(draw(st.sampled_from(sorted(added.values()))))
        elif kind == 8:
            ids.append(draw(st.sampled_from(family.stop_ids)))
        else:
            ids += family.tokenizer.encode(piece).tolist()
    return ids + [family.stop_ids[0]] * draw(st.booleans())


def byte_ids(family, byte):
    """The token of one byte alone, where the tokenizer has one."""
    found = [i for i in range(family.tokenizer.vocabulary_size) if family.tokenizer.bytes_of(i) == bytes([byte])]
    return found[:1]


@pytest.mark.parametrize("name", [*FAMILIES, "qwen3.5-think", "glm-4.7", "deepseek-r1", "deepseek-v3.1", "qwen2.5-vl"])
@pytest.mark.parametrize("tools", [TOOLS, ()])
def test_what_was_given_is_never_contradicted(family_of, name, tools):
    family = family_of(name)

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def holds_for(data):
        ids = data.draw(replies(family))
        mark = data.draw(st.sampled_from(PROMPTS))
        known = mark is None or mark in family.tokenizer.added
        prompt = None if mark is None or not known else family.tokenizer.encode(mark, special=True)
        whole = family.parse(np.array(ids, np.int32), tools, prompt=prompt)
        before = ("", "")
        for reasoning, text in told(family, ids, prompt=prompt, tools=tools, at_a_time=data.draw(st.integers(1, 4))):
            assert reasoning.startswith(before[0])
            assert text.startswith(before[1])
            assert (whole.reasoning or "").startswith(reasoning)
            assert whole.text.startswith(text)
            if text:
                assert reasoning == (whole.reasoning or "")
            before = reasoning, text

    holds_for()


@pytest.mark.parametrize("name", FAMILIES)
def test_ordinary_text_is_given_word_by_word(family_of, name):
    family = family_of(name)
    ids = [i for word in ("gold", " and", " silver") for i in family.tokenizer.encode(word).tolist()]
    given = [text for _, text in told(family, [*ids, family.stop_ids[0]])]
    assert given[-1] == "gold and silver"
    assert len(set(given)) > 3


def test_reasoning_is_given_before_the_text_and_a_call_holds_the_rest_back(family_of):
    family = family_of("qwen3")
    text = '<think>\nhm so\n</think>\n\nI look. <tool_call>\n{"name":"look","arguments":{}}\n</tool_call>gone'
    given = list(told(family, family.tokenizer.encode(text, special=True).tolist()))
    assert ("hm", "") in given
    assert given[-1] == ("hm so", "I look.")
    reasoned = [reasoning for reasoning, text in given if text]
    assert set(reasoned) == {"hm so"}


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3-instruct-2507", "smollm2"])
def test_a_model_that_does_not_reason_gives_its_marks_as_text(family_of, name):
    family = family_of(name)
    ids = family.tokenizer.encode("<think>hm</think>so", special=True).tolist()
    given = list(told(family, ids))
    assert given[-1] == ("", "<think>hm</think>so")
    assert len(set(given)) > 2


def test_a_character_is_given_when_its_last_byte_is_there(family_of):
    family = family_of("qwen3")
    ids = [i for byte in "a👍b".encode() for i in byte_ids(family, byte)]
    assert [text for _, text in told(family, ids)] == ["", "a", "a", "a", "a", "a👍", "a👍b"]


def test_nothing_behind_a_text_that_may_end_the_reply_is_given(family_of):
    family = family_of("qwen3")
    ids = family.tokenizer.encode("so ST and STOP it").tolist()
    given = [text for _, text in told(family, ids, holds=("STOP",))]
    assert given[-1] == "so ST and"
    assert "so S" not in given


@pytest.mark.parametrize("name", ["deepseek-r1"])
def test_reasoning_without_an_opening_is_read_as_a_whole(family_of, name):
    family = family_of(name)
    prompt = family.tokenizer.encode("<｜tool▁outputs▁end｜>", special=True)
    ids = family.tokenizer.encode("hm</think>so", special=True)
    assert set(told(family, ids.tolist(), prompt=prompt)) == {("", "")}
    assert family.parse(ids, prompt=prompt).reasoning == "hm"


def test_a_reply_of_llama_that_may_be_a_call_is_read_as_a_whole(family_of):
    family = family_of("llama-layout")
    ids = family.tokenizer.encode(' {"gold": 29}').tolist()
    assert list(told(family, ids))[-1] == ("", "")
    assert list(told(family, ids, tools=()))[-1] == ("", ' {"gold": 29}')


def test_an_unknown_template_is_read_as_a_whole(tmp_path):
    tokenizer = Tokenizer.load(write_toy_model(tmp_path))
    assert Capture(ChatModel(tokenizer=tokenizer, template=TEMPLATE, end_ids=(2,))).grow() is None


def test_a_tokenizer_whose_pieces_do_not_add_up_is_read_as_a_whole(tmp_path):
    path = write_toy_model(tmp_path) / "tokenizer.json"
    definition = json.loads(path.read_text("utf-8"))
    assert ChatML(Tokenizer(json.dumps(definition))).grow() is not None
    definition["decoder"] = {"type": "ByteFallback"}
    assert ChatML(Tokenizer(json.dumps(definition))).grow() is None


def test_white_space_in_front_is_held_back_where_a_call_would_strip_it(family_of):
    family = family_of("qwen2.5")
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    ids = family.tokenizer.encode(f" gold{call}", special=True)
    assert family.parse(ids, TOOLS).text == "gold"
    assert set(told(family, ids.tolist())) == {("", "")}


def test_a_piece_of_a_character_before_a_control_token_is_given_as_it_is_read(family_of):
    family = family_of("qwen3")
    ids = [*byte_ids(family, ord("a")), *byte_ids(family, 0xF0), family.tokenizer.added["<think>"]]
    assert family.parse(np.array(ids, np.int32)).text == "a\ufffd<think>"
    assert list(told(family, ids))[-1] == ("", "a\ufffd<think>")
