"""What is read from sources, against the modules themselves."""

import importlib
import inspect
import warnings

import pytest

from agar.examples.search_r1.corpus import NAMES
from agar.examples.search_r1.library import Definition, chosen, definitions, names_of


@pytest.fixture(scope="module")
def found() -> list[Definition]:
    return definitions()


def test_what_is_asked_about_is_what_the_modules_hold(found: list[Definition]) -> None:
    checked = 0
    for each in chosen(found, names=NAMES):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                thing = getattr(importlib.import_module(each.module), each.name)
        except (ImportError, AttributeError):  # of another platform, or replaced by its C twin
            continue
        if each.kind == "class" and inspect.isclass(thing) and thing.__module__ == each.module:
            if each.base is not None:
                assert thing.__bases__[0].__name__ == each.base.rpartition(".")[2]
                checked += 1
        elif inspect.isfunction(inspect.unwrap(thing)) and thing.__module__ == each.module:
            first = next(iter(inspect.signature(thing).parameters), None)
            if each.parameter is not None and not hasattr(thing, "__wrapped__"):
                assert first == each.parameter
                checked += 1
    assert checked > 80


def test_names_are_unique_and_without_digits(found: list[Definition]) -> None:
    assert len({each.name for each in found}) == len(found) > 1000
    assert not any(character.isdigit() for name in names_of(found) for character in name)


def test_about_as_many_names_are_chosen_as_wanted_in_whole_modules(found: list[Definition]) -> None:
    some = chosen(found, names=NAMES)
    assert NAMES <= len(names_of(some)) < NAMES + 60
    modules = {each.module for each in some}
    assert some == [each for each in found if each.module in modules]


def test_broken_sources_are_passed_over(tmp_path) -> None:
    (tmp_path / "good.py").write_text('def work(thing, other=1):\n    """Does it: `yes`.\n\n    More.\n    """\n')
    (tmp_path / "bad.py").write_text("def (:\n")
    (tmp_path / "_private.py").write_text('def hidden():\n    """Hidden."""\n')
    (tmp_path / "twice.py").write_text('class Base(dict):\n    """A base."""\n\ndef undocumented(x):\n    pass\n')
    assert definitions(tmp_path) == [
        Definition(name="work", module="good", kind="function", parameter="thing", says="Does it: yes."),
        Definition(name="Base", module="twice", kind="class", base="dict", says="A base."),
    ]
