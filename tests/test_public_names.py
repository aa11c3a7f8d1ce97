"""What is promised by name is there, and every error survives a pickle."""

import importlib
import inspect
import pickle
import pkgutil

import pytest

import agar
from agar import errors
from agar.errors import AgarError

ERRORS = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, AgarError)]


def test_every_public_name_of_agar_resolves_and_is_listed() -> None:
    assert dir(agar) == sorted(agar.__all__)
    assert set(agar.__all__) == {*agar._EXPORTS, "__version__"}
    for name in agar.__all__:
        assert getattr(agar, name) is not None


def test_a_name_that_agar_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        agar.no_such_name  # noqa: B018


def test_every_name_that_a_room_lists_resolves() -> None:
    rooms = [module.name for module in pkgutil.iter_modules(agar.__path__, "agar.") if module.ispkg]
    assert "agar.envs" in rooms
    for room in rooms:
        module = importlib.import_module(room)
        missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        assert missing == [], f"{room}.__all__ lists {missing}"


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_pickles_and_refines_a_built_in(kind: type[AgarError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what was expected, what came, what to do")))
    assert type(error) is kind
    assert str(error) == "what was expected, what came, what to do"
    built_in = [base for base in kind.__mro__ if base.__module__ == "builtins" and base not in (Exception, object)]
    assert kind is AgarError or set(built_in) - {BaseException}


def test_the_tree_of_errors_is_complete() -> None:
    assert errors.__doc__ is not None
    for kind in ERRORS:
        assert kind.__name__ in errors.__doc__
