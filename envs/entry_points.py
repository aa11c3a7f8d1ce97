"""What makes an environment, and what "module:attribute" names."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium

from agar.errors import ConfigError

EntryPoint = Callable[..., gymnasium.Env[Any, Any]] | str
"""A class or function that makes an environment, or "module:attribute" that names one."""


def load(name: str) -> Any:
    """What "module:attribute" names.

    Raises:
        ConfigError: it cannot be found.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ConfigError(f'expected "module:attribute", got {name!r}')
    try:
        return getattr(imported(module, wanted_by=name), attribute)
    except AttributeError as error:
        raise ConfigError(f"module {module} has no {attribute!r}: check the spelling in {name!r}") from error


def imported(module: str, *, wanted_by: str) -> Any:
    """A module, on behalf of a name that names it.

    Raises:
        ConfigError: it cannot be found; what it lacks itself is raised as it is.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):  # not what the module itself lacks
            raise ConfigError(
                f"{wanted_by!r} names module {module!r}, which cannot be found: run from its folder, or install it"
            ) from error
        raise


def name_of(entry_point: EntryPoint) -> str:
    """An entry point as "module:attribute"."""
    if isinstance(entry_point, str):
        return entry_point
    return f"{entry_point.__module__}:{getattr(entry_point, '__qualname__', repr(entry_point))}"
