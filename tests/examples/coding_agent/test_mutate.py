"""Mistakes: one line each, spelt as code is, none the original."""

import pytest

from agar.examples.coding_agent.library import MODULES, ONE_LINERS
from agar.examples.coding_agent.mutate import mutants, normal

FUNCTIONS = [one for content in MODULES.values() for one in content]


@pytest.mark.parametrize(
    ("line", "mistakes"),
    [
        ("a + b", {"a - b", "a * b"}),
        ("a < b", {"a <= b", "a > b"}),
        ("a and b", {"a or b"}),
        ("max(a, 3)", {"min(a, 3)", "max(a, 4)", "max(a, 2)"}),
        ("a.startswith('x')", {"a.endswith('x')"}),
        ("a not in b", {"a in b"}),
        ("a[:0]", {"a[:1]"}),
        ("True", set()),
        ("'text'", set()),
    ],
)
def test_a_line_has_the_mistakes_that_people_make_in_it(line: str, mistakes: set[str]) -> None:
    found = mutants(normal(f"def f(a, b):\n    return {line}\n"))
    assert {mutant.wrong for mutant in found} == {f"return {mistake}" for mistake in mistakes}
    assert {mutant.right for mutant in found} <= {f"return {line}"}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.name)
def test_every_function_has_mistakes_that_change_one_line(function) -> None:
    source = normal(function.source)
    found = mutants(source)
    assert found
    for mutant in found:
        assert mutant.source != source
        assert mutant.source.replace(mutant.wrong, mutant.right) == source


def test_names_are_unique() -> None:
    names = [one.name for one in (*FUNCTIONS, *ONE_LINERS)]
    assert len(set(names)) == len(names)
