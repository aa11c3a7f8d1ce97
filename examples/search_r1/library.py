"""What Python's standard library defines: read from its sources, never imported."""

import ast
import hashlib
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_DIGITS = re.compile(r"\d")
_LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "turtledemo", "tkinter", "distutils", "ensurepip", "site-packages"}
)
"""Folders that not every Python brings, or that nobody asks about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A public function or class at the top of a module.

    Attributes:
        name: as the module defines it.
        module: where, with dots.
        kind: `function` or `class`.
        parameter: a function's first parameter; None where it has none, and for classes.
        base: a class's first base; None where it has none, and for functions.
        says: the first paragraph of its documentation; may be empty.
    """

    name: str
    module: str
    kind: str
    parameter: str | None = None
    base: str | None = None
    says: str = ""


def definitions(root: Path | None = None) -> list[Definition]:
    """All that say what they are and whose name no other module defines, in the order of modules and lines.

    Names with digits are left out: a tiny policy's tokenizer keeps digits apart, and so could not have them whole.

    Args:
        root: a folder of modules; the running Python's own library by default.
    """
    found = list(_all(root or Path(sysconfig.get_path("stdlib"))))
    count = Counter(each.name for each in found)
    return [each for each in found if count[each.name] == 1 and each.says and not _has_digits(each)]


def names_of(found: Iterable[Definition]) -> list[str]:
    """Every name of definitions, modules, parameters and bases, in the alphabet's order."""
    return sorted({name for each in found for name in _names(each)})


def chosen(found: Sequence[Definition], *, names: int) -> list[Definition]:
    """Some modules with all that they define, about so many names in all.

    A tiny policy's tokenizer has an id for every name that it is asked about, so these cannot be many.

    Args:
        found: the library.
        names: modules are added until there are as many.
    """
    modules: dict[str, list[Definition]] = {}
    for each in found:
        modules.setdefault(each.module, []).append(each)
    taken: list[Definition] = []
    for module in sorted(modules, key=lambda module: hashlib.blake2s(module.encode()).digest()):
        if 3 <= len(modules[module]) <= 30 and len(names_of(taken)) < names:
            taken += modules[module]
    return sorted(taken, key=lambda each: each.module)


def _has_digits(each: Definition) -> bool:
    return any(_DIGITS.search(name) for name in _names(each))


def _names(each: Definition) -> list[str]:
    return [name for name in (each.name, each.module, each.parameter, each.base) if name is not None]


def version() -> str:
    """What the definitions depend on."""
    return ".".join(map(str, sys.version_info[:3]))


def _all(root: Path) -> Iterator[Definition]:
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if not parts or not _LEFT_OUT.isdisjoint(parts) or any(part.startswith("_") for part in parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):  # the library holds files that are wrong on purpose
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
                yield _definition(node, ".".join(parts))


def _definition(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, module: str) -> Definition:
    says = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split()).replace("`", "")
    if isinstance(node, ast.ClassDef):
        base = ast.unparse(node.bases[0]) if node.bases else ""
        named = base if base.replace(".", "").isidentifier() else None
        return Definition(name=node.name, module=module, kind="class", base=named, says=says)
    first = [*node.args.posonlyargs, *node.args.args]
    parameter = first[0].arg if first else None
    return Definition(name=node.name, module=module, kind="function", parameter=parameter, says=says)
