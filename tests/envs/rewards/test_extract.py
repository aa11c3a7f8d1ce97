"""Where an answer stands."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.rewards.extract import after, boxed, gold_of, last_line, several_boxed, tagged, whole
from agar.errors import EnvError


@pytest.mark.parametrize(
    ("extract", "reply", "answer"),
    [
        (whole, "  a b\n", "a b"),
        (whole, " \n", None),
        (last_line, "a\n b \n\n", "b"),
        (last_line, "", None),
        (boxed, r"so \boxed{1} and \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (boxed, r"\fbox{ 7 }", "7"),
        (boxed, r"\boxed{1", None),
        (boxed, "7", None),
        (tagged("answer"), "<answer>1</answer> no <answer>\n2\n</answer>", "2"),
        (tagged("answer"), "<answer>1", None),
        (after("####"), "5 + 5\n#### 10 \nbye", "10"),
        (after("####"), "####", None),
        (after("####"), "10", None),
    ],
)
def test_the_last_one_counts(extract, reply, answer):
    assert extract(reply) == answer


def test_the_right_answer_is_one_or_several(told):
    assert gold_of(told("", answer=4), "answer") == ["4"]
    assert gold_of(told("", answers=["a", "b"]), "answers") == ["a", "b"]
    for payload in ({}, {"answer": []}, {"answer": None}):
        with pytest.raises(EnvError, match="no 'answer' in its payload"):
            gold_of(told("", **payload), "answer")


def test_squads_table_of_answers_is_the_list_of_its_texts(told):
    answers = {"text": ["Paris", "the city of Paris"], "answer_start": [3, 8]}
    assert gold_of(told("", answers=answers), "answers") == ["Paris", "the city of Paris"]
    unanswerable = {"text": [], "answer_start": []}  # as in SQuAD 2
    with pytest.raises(EnvError, match="no 'answers' in its payload"):
        gold_of(told("", answers=unanswerable), "answers")


@pytest.mark.parametrize("value", [{"text": ["a"]}, {"a": 1}, [None], [["a"]], [{"text": "a"}], b"a"])
def test_what_is_no_answer_is_refused(told, value):
    with pytest.raises(EnvError, match="expected a text, a number, a list of them, or SQuAD's"):
        gold_of(told("", answer=value), "answer")


@pytest.mark.parametrize(
    ("reply", "several"),
    [
        (r"\boxed{1} or \boxed{2}", True),
        (r"$\boxed{1}$, $\boxed{2}$", True),
        (r"$\boxed{1} \text{ or } \boxed{2}$", True),
        (r"\boxed{1}\boxed{2}", True),
        (r"\boxed{2} and \boxed{2}", False),
        (r"\boxed{1}. No, it is \boxed{2}", False),
        (r"x = \frac{10}{2}, \boxed{5}", False),
        (r"\boxed{5}", False),
        ("5", False),
    ],
)
def test_boxes_side_by_side_are_several_answers(reply, several):
    assert several_boxed(reply) is several


@given(st.lists(st.sampled_from(["<a>", "</a>", "x", "\n", "<a", ">"]), max_size=12).map("".join))
def test_what_is_tagged_is_what_the_pattern_finds(text):
    found = re.findall(r"<a>(.*?)</a>", text, re.DOTALL)
    assert tagged("a")(text) == (found[-1].strip() if found else None)


def test_tags_that_are_never_closed_cost_no_more_than_their_length():
    began = time.process_time()
    assert tagged("answer")("<answer>1</answer>" + "<answer>" * 100_000) == "1"
    assert time.process_time() - began < 2  # with a pattern it took minutes
