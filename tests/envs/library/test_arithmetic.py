"""Arithmetic is exact, and nothing else is."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.library.arithmetic import evaluate, written
from agar.errors import ToolError


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("37 + 4 * 12", "85"),
        ("(37 + 4) * 12", "492"),
        ("1 / 3", "0.333333"),
        ("0.1 + 0.2", "0.3"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("+5 - -5", "10"),
        ("7/2", "3.5"),
    ],
)
def test_values_are_those_of_school(expression, value):
    assert written(evaluate(expression)) == value


@given(st.recursive(st.integers(0, 999).map(str), lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
    lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"), max_leaves=4))  # fmt: skip
def test_it_agrees_with_python(expression):
    assert evaluate(expression) == Fraction(eval(expression))


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "9 ** 99999999",
            "__import__('os').system('true')",
            "(lambda: 1)()",
            "[1] * 10**9",
            "'a' * 999",
            "1 if 1 else 2",
        ),
        *("x + 1", "", "1 +", "True", "1e400", "9" * 300, "1/0", "10**3", "((((((1", "a\0b", "1j", "\ud800"),
        "999999999999999 * 999999999999999",
    ],
)
def test_what_is_no_arithmetic_or_too_large_is_refused(expression):
    with pytest.raises(ToolError):
        evaluate(expression)
