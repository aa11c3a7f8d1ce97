"""Exact match and F1 by SQuAD's rules. The expected values are worked out by hand."""

import pytest

from agar.envs.rewards.answers import exact_match, f1, normalise
from agar.envs.rewards.extract import tagged


def test_normalising_is_squads():
    assert normalise("The  Eiffel-Tower, a tower!") == "eiffeltower tower"
    assert normalise("An apple; THE pear") == "apple pear"


@pytest.mark.parametrize(
    ("reply", "gold", "score"),
    [
        ("The Eiffel Tower.", "eiffel tower", 1.0),
        ("Eiffel Towers", "eiffel tower", 0.0),
        ("Paris", ["London", "paris"], 1.0),
        ("", "paris", 0.0),
        ("29", 29, 1.0),
    ],
)
def test_exact_match(told, reply, gold, score):
    assert exact_match()(told(reply, answer=gold)) == score


@pytest.mark.parametrize(
    ("reply", "gold", "score"),
    [
        ("the cat sat", "a cat sat", 1.0),
        ("cat sat down", "cat sat", 0.8),  # 2 of 3, 2 of 2
        ("cat cat", "cat", 2 / 3),  # each word counts as often as it is in both
        ("dog", "cat", 0.0),
        ("dog cat", ["cow", "cat"], 2 / 3),  # the best of several
        ("the", "a", 1.0),  # nothing is left of either
        ("", "cat", 0.0),
    ],
)
def test_f1(told, reply, gold, score):
    assert f1()(told(reply, answer=gold)) == pytest.approx(score)


def test_the_answer_may_stand_in_a_tag(told):
    score = exact_match(extract=tagged("answer"))
    assert score(told("I think <answer>Paris</answer>", answer="Paris")) == 1.0
    assert score(told("Paris", answer="Paris")) == 0.0


def test_squads_own_answers_are_graded(told):
    answers = {"text": ["Paris", "Paris, France"], "answer_start": [3, 3]}
    assert exact_match()(told("paris", answer=answers)) == 1.0
    assert f1()(told("in Paris, France", answer=answers)) == pytest.approx(0.8)  # 2 of 3, 2 of 2
