"""Reading numbers out of texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.parsing import parse_int


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("My guess is 42.", 42),
        ("not 40, so 42", 42),
        ("-7", -7),
        ("+7", 7),
        ("1,234", 1234),
        ("1,234,567 boxes", 1234567),
        ("it is 5, I think", 5),
        ("007", 7),
        ("<answer>12</answer>", 12),
        ("3.5", None),
        ("x12", None),
        ("12th", None),
        ("", None),
        ("none", None),
        ("٣", None),
        ("1" * 19, None),
        ("9" * 5000, None),
    ],
)
def test_the_last_whole_number_counts(text, number):
    assert parse_int(text) == number


@given(st.integers(min_value=-(10**17), max_value=10**17), st.text(alphabet="abc .!?\n"))
def test_a_number_after_words_is_found(number, words):
    assert parse_int(f"{words} {number}") == number


@given(st.text())
def test_no_text_makes_it_fail(text):
    assert parse_int(text) is None or isinstance(parse_int(text), int)
