"""Exact match and F1 by SQuAD's rules; multiple choice. The expected values are worked out by hand."""

import pytest

from agar.envs.rewards.answers import exact_match, f1, multiple_choice, normalise
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


CHOICES = ["red", "green", "blue"]


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("B", "B"),
        ("(B)", "B"),
        ("B. green", "B"),
        ("**B**", "B"),
        ("The answer is B.", "B"),
        ("The answer is (B) because A is wrong", "B"),
        ("Answer: C\nNo, wait. Answer: B", "B"),
        ("Let me think about it.\nB", "B"),
        ("Green.", "B"),
        ("A or B", None),
        ("The answer is A or B", None),
        ("The answer is A, B, C", None),
        ("answer is a matter of taste", None),
        ("A B C", None),
        ("I do not know", None),
        ("", None),
    ],
)
def test_what_is_chosen(told, reply, letter):
    for right, gold in (("A", "A"), ("B", "B"), ("B", 1), ("B", "green"), ("C", "(c)")):
        score = multiple_choice()(told(reply, answer=gold, choices=CHOICES))
        assert score == float(letter == right), (reply, gold)
