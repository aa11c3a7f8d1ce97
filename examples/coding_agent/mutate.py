"""Mistakes that people make, put into working code: each changes one line."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass

_BINARY: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Add, ast.Sub),
    ast.FloorDiv: (ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv, ast.Add),
}
_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_NAMES = {"max": "min", "min": "max", "any": "all", "all": "any"}
_METHODS = {"lower": "upper", "upper": "lower", "startswith": "endswith", "endswith": "startswith"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A function with one mistake.

    Attributes:
        source: its code.
        wrong: the line with the mistake, without blanks at its ends.
        right: what that line was.
    """

    source: str
    wrong: str
    right: str


@functools.lru_cache(maxsize=1024)
def normal(source: str) -> str:
    """Code in the one spelling that mutants have too: without comments, as `ast` writes it."""
    return ast.unparse(ast.parse(source)) + "\n"


@functools.lru_cache(maxsize=1024)
def mutants(source: str) -> tuple[Mutant, ...]:
    """Every mistake in a function that changes exactly one line of it, into one that stands nowhere else in it.

    Args:
        source: the function, as `normal` gives it.
    """
    before = source.splitlines()
    found: list[Mutant] = []
    for tree in _changed(source):
        after = ast.unparse(tree).splitlines()
        differ = [number for number, (old, new) in enumerate(zip(before, after, strict=False)) if old != new]
        if len(before) == len(after) and len(differ) == 1:
            wrong, right = after[differ[0]].strip(), before[differ[0]].strip()
            if sum(wrong in line for line in after) > 1:  # an edit could not name it
                continue
            found.append(Mutant(source="\n".join(after) + "\n", wrong=wrong, right=right))
    return tuple(found)


def _changed(source: str) -> Iterator[ast.Module]:
    """The function's trees, each with one node changed."""
    for place, node in enumerate(ast.walk(ast.parse(source))):
        for change in range(len(_changes(node))):
            tree = ast.parse(source)
            _changes(list(ast.walk(tree))[place])[change]()
            yield ast.fix_missing_locations(tree)


def _changes(node: ast.AST) -> list["_Set"]:
    match node:
        case ast.BinOp(op=operator):
            return [_Set(node, "op", other()) for other in _BINARY.get(type(operator), ())]
        case ast.AugAssign(op=operator):
            return [_Set(node, "op", other()) for other in _BINARY.get(type(operator), ())]
        case ast.Compare(ops=[operator]):
            return [_Set(node, "ops", [other()]) for other in _COMPARE.get(type(operator), ())]
        case ast.BoolOp(op=operator):
            return [_Set(node, "op", ast.Or() if isinstance(operator, ast.And) else ast.And())]
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return [_Set(node, "value", number + 1), *([_Set(node, "value", number - 1)] if number > 0 else [])]
        case ast.Name(id=name) if name in _NAMES:
            return [_Set(node, "id", _NAMES[name])]
        case ast.Attribute(attr=name) if name in _METHODS:
            return [_Set(node, "attr", _METHODS[name])]
    return []


@dataclass(frozen=True, slots=True)
class _Set:
    """Give a field of a node another value."""

    node: ast.AST
    name: str
    value: object

    def __call__(self) -> None:
        setattr(self.node, self.name, self.value)
