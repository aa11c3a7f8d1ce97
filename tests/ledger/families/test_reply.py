# ruff: noqa: RUF001 (DeepSeek's own tokens)
"""Replies as models write them, well and badly, read from ids."""

import time

import numpy as np
import pytest

from agar.ledger.families.conversations import TOOLS
from agar.ledger.families.reply import split_reasoning
from agar.types import Finish

CALLS, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, END_CALL, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


def parse(family, text, *, stop=True, tools=TOOLS, prompt=None):
    """`text` with its control tokens as such, as an engine would have sampled it."""
    ids = family.tokenizer.encode(text, special=True).tolist() + [family.stop_ids[0]] * stop
    return family.parse(np.array(ids, np.int32), tools, prompt=prompt)


def values(turn):
    return [(call.name, dict(call.arguments)) for call in turn.tool_calls]


@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("qwen3", '<tool_call>{"name":"look","arguments":{"at":"x"}}</tool_call>', [("look", {"at": "x"})]),
        ("qwen3", '<tool_call>\n{"name": "rest"}\n</tool_call>', [("rest", {})]),
        (
            "qwen3.5-nothink",
            "<tool_call>\n<function=look>\n<parameter=at>\n5\n\n</parameter>\n<parameter=times>\n2\n</parameter>\n"
            "</function>\n</tool_call>",
            [("look", {"at": "5\n", "times": 2})],
        ),
        ("qwen3.5-nothink", "<tool_call><function=rest></function></tool_call>", [("rest", {})]),
        (
            "qwen3.6",
            "</think><tool_call>\n<function=look>\n<parameter=at>\n<b>x</b>\n</parameter>\n</function>\n</tool_call>",
            [("look", {"at": "<b>x</b>"})],
        ),
        (
            "glm-4.5",
            "<tool_call>look\n<arg_key>at</arg_key>\n<arg_value> a\nb </arg_value>\n<arg_key>sharp</arg_key>\n"
            "<arg_value>true</arg_value>\n</tool_call>",
            [("look", {"at": " a\nb ", "sharp": True})],
        ),
        ("glm-4.7", "</think><tool_call>rest</tool_call><tool_call>rest</tool_call>", [("rest", {}), ("rest", {})]),
        (
            "deepseek-v3",
            f'{CALLS}{CALL}function{SEP}look\n```json\n{{"at": "```"}}\n```{END_CALL}\n'
            f"{CALL}function{SEP}rest\n```json\n{{}}\n```{END_CALL}{END}",
            [("look", {"at": "```"}), ("rest", {})],
        ),
        ("deepseek-v3.1", f'{CALLS}{CALL}look{SEP}{{"at": "x"}}{END_CALL}{END}', [("look", {"at": "x"})]),
        ("llama-layout", '{"name": "look", "parameters": {"at": "x"}}', [("look", {"at": "x"})]),
        ("llama-layout", '<|python_tag|>{"name": "rest", "parameters": {}}', [("rest", {})]),
        ("llama-layout", '{"name": "rest"}; {"name": "rest"}', [("rest", {}), ("rest", {})]),
        ("qwen3", '<tool_call>{"name":"look","parameters":{"at":"x"}}</tool_call>', [("look", {"at": "x"})]),
        ("llama-layout", '{"name": "look", "arguments": {"at": "x"}}', [("look", {"at": "x"})]),
        ("llama-layout", '{"type": "function", "name": "rest", "parameters": {}}', [("rest", {})]),
        ("llama-layout", '{"name": "other", "parameters": {}}', [("other", {})]),
    ],
)
def test_calls_are_read_in_each_familys_own_form(family_of, name, text, calls):
    turn = parse(family_of(name), text)
    assert (values(turn), turn.parse_error, turn.text) == (calls, None, "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glm-4.7", "</think><tool_call>rest</tool_call><tool_call>rest</tool_call>"),
        ("llama-layout", '{"name": "rest"}; {"name": "rest"}'),
    ],
)
def test_calls_are_numbered_behind_the_name_that_they_are_given(family_of, name, text):
    family = family_of(name)
    ids = np.array(family.tokenizer.encode(text, special=True), np.int32)
    assert [call.id for call in family.parse(ids, TOOLS).tool_calls] == ["call_0", "call_1"]
    assert [call.id for call in family.parse(ids, TOOLS, call_id="call_7").tool_calls] == ["call_7_0", "call_7_1"]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("qwen3", "<tool_call>look</tool_call>", "not JSON"),
        ("qwen3.5-nothink", '<tool_call>{"name": "look"}</tool_call>', "must be <function=NAME>"),
        (
            "qwen3.5-nothink",
            "<tool_call><function=look>at=x</function></tool_call>",
            "something besides <parameter=KEY>",
        ),
        ("qwen3.5-nothink", "<tool_call><function=look><parameter=at>x</function></tool_call>", "something besides"),
        ("glm-4.5", "<tool_call>\n</tool_call>", "must begin with the tool's name"),
        ("glm-4.5", "<tool_call>look\nat x</tool_call>", "a line of its own"),
        ("glm-4.5", "<tool_call>look\n<arg_key>at</arg_key>x</tool_call>", "besides <arg_key> and <arg_value>"),
        ("deepseek-v3", f"{CALL}look{END_CALL}", "must be TYPE, its separator"),
        ("deepseek-v3", f'{CALL}function{SEP}look\n{{"at": "x"}}{END_CALL}', "```json block"),
        ("deepseek-v3", f"{CALL}function{SEP}look\n```json\n[1]\n```{END_CALL}", "must be an object"),
        ("deepseek-v3.1", f"{CALL}look{END_CALL}", "its separator, and JSON"),
        ("llama-layout", '{"name": "look", "parameters": ', "not JSON"),
        ("llama-layout", '{"name": "look", "at": "x"}', "has ['at'] beside"),
        ("llama-layout", '{"name": "rest"} {"answer": 29}', "a tool call must be"),
        ("qwen3", '<tool_call>{"name":"look","at":"x","times":2}</tool_call>', "has ['at', 'times'] beside"),
        ("qwen3", '<tool_call>{"name":"look","parameters":{},"arguments":{}}</tool_call>', "both arguments and"),
        ("llama-layout", "<|python_tag|>look(at='x')", "not JSON"),
    ],
)
def test_a_broken_call_stays_in_the_text_and_says_why(family_of, name, text, why):
    turn = parse(family_of(name), text)
    assert turn.tool_calls == ()
    assert why in turn.parse_error
    assert turn.text.strip() == text.strip()


def test_good_calls_beside_a_broken_one_are_kept(family_of):
    turn = parse(family_of("qwen3"), 'So: <tool_call>x</tool_call><tool_call>{"name":"rest"}</tool_call>')
    assert values(turn) == [("rest", {})]
    assert turn.text == "So: <tool_call>x</tool_call>"
    assert "not JSON" in turn.parse_error


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5-nothink", "glm-4.5", "deepseek-v3"])
def test_a_call_cut_by_length_is_no_call(family_of, name):
    opening = family_of(name).calls.opening
    turn = parse(family_of(name), f"I look. {opening}look", stop=False)
    assert (turn.finish, turn.tool_calls, turn.text) == (Finish.LENGTH, (), f"I look. {opening}look")
    assert turn.parse_error == "the reply ended inside a tool call"


@pytest.mark.parametrize(
    "name", ["qwen3", "qwen3.5-nothink", "glm-4.5", "deepseek-v3.1", "qwen2.5", "smollm2", "llama-layout"]
)
def test_marks_spelt_with_ordinary_tokens_are_text(family_of, name):
    family = family_of(name)
    text = "<think>a</think> <tool_call>rest</tool_call>" + CALL + "rest" + END_CALL
    ids = [*family.tokenizer.encode(text).tolist(), family.stop_ids[0]]
    turn = family.parse(np.array(ids, np.int32), TOOLS)
    assert (turn.text, turn.reasoning, turn.tool_calls) == (text, None, ())


def test_a_model_that_does_not_reason_says_its_marks(family_of):
    for name in ("qwen2.5", "qwen3-instruct-2507"):
        text = " <think>It shines.</think> <answer>gold</answer> "
        turn = parse(family_of(name), text)
        assert (turn.text, turn.reasoning) == (text, None)


def test_marks_inside_a_value_stay_in_the_value(family_of):
    family = family_of("glm-4.5")
    encode = family.tokenizer.encode
    inner = encode("</arg_value></tool_call>").tolist()
    ids = [
        *encode("<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>", special=True).tolist(),
        *inner,
        *encode("</arg_value>\n</tool_call>", special=True).tolist(),
    ]
    assert values(family.parse(np.array(ids, np.int32), TOOLS)) == [("look", {"at": "</arg_value></tool_call>"})]


@pytest.mark.parametrize(
    ("text", "inside", "expected"),
    [
        ("plain", False, (None, "plain")),
        ("<think>a</think>b", False, ("a", "b")),
        ("\n<think>a</think>b", False, ("a", "b")),
        ("a</think>b", False, (None, "a</think>b")),
        ("a</think>b", True, ("a", "b")),
        ("a", True, ("a", "")),
        ("<think>a", False, ("a", "")),
        ("</think>b", True, ("", "b")),
        ("a <think> b", False, (None, "a <think> b")),
    ],
)
def test_reasoning_is_split_off(text, inside, expected):
    assert split_reasoning(text, inside=inside, unopened=False) == expected
    unopened = ("a", "b") if text == "a</think>b" else expected
    assert split_reasoning(text, inside=inside, unopened=True) == unopened


def test_the_prompt_says_whether_a_reply_begins_inside_its_reasoning(family_of):
    family = family_of("deepseek-r1")
    results = family.tokenizer.encode("<｜tool▁outputs▁end｜>", special=True)
    assert parse(family, "a", stop=False).reasoning == "a"
    assert parse(family, "a", stop=False, prompt=results).text == "a"


def test_calls_in_reasoning_are_no_calls(family_of):
    turn = parse(family_of("qwen3"), '<think>maybe <tool_call>{"name":"rest"}</tool_call></think>No.')
    assert (turn.text, turn.tool_calls) == ("No.", ())
    assert turn.reasoning == 'maybe <tool_call>{"name":"rest"}</tool_call>'


def test_a_json_answer_of_llama_is_an_answer(family_of):
    family = family_of("llama-layout")
    for answer in ('{"answer": 29}', '{"name": "Bob", "age": 5}', '{"name": "Bob", "age": ', '{"a": 1}; {"name": "b"}'):
        turn = parse(family, answer)
        assert (turn.text, turn.tool_calls, turn.parse_error) == (answer, (), None)
    assert parse(family, '{"answer": 29}').text == '{"answer": 29}'
    assert parse(family, '{"name": "look", "parameters": {}}', tools=()).tool_calls == ()


def test_an_empty_reply_is_an_empty_turn(family_of):
    turn = family_of("qwen3").parse(np.array([], np.int32))
    assert (turn.text, turn.reasoning, turn.tool_calls, turn.finish) == ("", None, (), Finish.LENGTH)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3.5-nothink", "<tool_call><function=a>" + "<parameter=a>" * 4000 + "</function></tool_call>"),
        (
            "qwen3.5-nothink",
            "<tool_call><function=a>" + "<parameter=a>x</parameter>y" * 4000 + "</function></tool_call>",
        ),
        ("glm-4.5", "<tool_call>a\n" + "<arg_key>" * 8000 + "</tool_call>"),
        ("glm-4.5", "<tool_call>a</tool_call>" * 8000),
        ("qwen3", "<tool_call>" * 8000),
        ("deepseek-v3", CALL * 8000),
        ("llama-layout", '{"name":"a"};' * 4000),
    ],
)
def test_a_reply_that_never_gets_anywhere_is_read_in_moderate_time(family_of, name, text):
    start = time.process_time()
    parse(family_of(name), text)
    assert time.process_time() - start < 20  # quadratic reading takes minutes
