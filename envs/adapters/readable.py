"""Which answers reasoning-gym may read: some of its data sets evaluate the text of an answer as Python.

Checked against reasoning-gym 0.1.25: `eval` in four data sets, sympy's `parse_expr` (which evaluates) in five, and
`Fraction` in one, where `1e999999999` is a number of a billion digits. What a model says is hostile, and what it says
in the thread of a trainer must be data.
"""

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

UNREADABLE = ")"
"""What is scored in the place of an answer that may not be read: no data set that evaluates can read it either."""

_LONGEST = 4_000
_ARITHMETIC = re.compile(r"(?:\d{1,9}(?!\d)|\*(?!\s*\*)|/(?!\s*/)|[+\-()\s])*")
_TOKEN = re.compile(
    r"\s+|\*\*\s*(?:-?(\d{1,2})(?![\d.])|\(\s*-?(\d{1,2})(?:\s*/\s*\d{1,2})?\s*\))(?!\s*(?:\*\*|!))|"
    r"(?:\d{1,20}(?!\d)(?:\.\d{1,20}(?!\d))?)(?![\w.!])|\*(?!\s*\*)|/(?!\s*/)|[+\-()]|"
    r"(?:asinh|acosh|atanh|sinh|cosh|tanh|asin|acos|atan|sin|cos|tan|sec|csc|cot|exp|log|ln|sqrt|pi|[a-zA-Z])(?![\w.\[])"
)
_RATIO = re.compile(r"[+-]?\d{1,20}(?:/\d{1,20}|(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?)")
_LARGEST_POWER = 100


def readable(dataset: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether a data set's own score may see an answer.

    Args:
        dataset: its name.
        answer: what the model said.
        entry: the task; what it holds as right may always be seen.
    """
    harmless = _EVALUATED.get(dataset)
    if harmless is None:
        return True
    right = [entry["answer"], *entry["metadata"].get("valid_answers", ())]
    return answer in {str(one).strip() for one in right} or (len(answer) <= _LONGEST and harmless(answer))


def _literal(answer: str) -> bool:
    try:
        ast.literal_eval(answer)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
    return True


def _arithmetic(answer: str) -> bool:
    return _ARITHMETIC.fullmatch(answer) is not None


def _formula(answer: str) -> bool:
    at, before, power = 0, "", 1
    while at < len(answer):
        token = _TOKEN.match(answer, at)
        if token is None:
            return False
        if before == ")" and token[0].startswith("**"):  # of a group, which may hold a power itself
            power *= max(int(token[1] or token[2]), 1)
        at, before = token.end(), token[0].strip() or before
    return power <= _LARGEST_POWER


def _ratio(answer: str) -> bool:
    return _RATIO.fullmatch(answer) is not None


_EVALUATED: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"), _literal),
    **dict.fromkeys(("countdown", "puzzle24"), _arithmetic),
    **dict.fromkeys(("polynomial_multiplication", "simple_integration", "intermediate_integration"), _formula),
    "coin_flip": _ratio,
}
