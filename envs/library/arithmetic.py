"""Arithmetic that a model wrote, worked out exactly and within bounds."""

import ast
import operator
from fractions import Fraction

from agar.errors import ToolError

MAX_CHARS = 200
"""The longest expression."""
MAX_VALUE = 10**15
"""The largest number, written or worked out."""

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(expression: str) -> Fraction:
    """The value of an expression of numbers, `+ - * / // %` and brackets.

    Raises:
        ToolError: it is something else, too long, too large, or divides by zero.
    """
    if len(expression) > MAX_CHARS:
        raise ToolError(f"an expression of {len(expression)} characters, at most {MAX_CHARS} are read")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"{expression!r} is no expression of numbers, + - * / // % and brackets") from error
    except ZeroDivisionError as error:
        raise ToolError("division by zero") from error


def written(value: Fraction) -> str:
    """A number as people write it: whole, or with up to six decimals."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.6f}".rstrip("0")


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(Fraction(str(number)))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(Fraction(_OPERATORS[type(op)](_value(left), _value(right))))
    raise ValueError(f"no arithmetic: {ast.dump(node)[:80]}")


def _bounded(value: Fraction) -> Fraction:
    if abs(value) > MAX_VALUE or value.denominator > MAX_VALUE:
        raise ToolError(f"a number beyond {MAX_VALUE:g}: work with smaller ones")
    return value
