"""The services that can be served by name."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from agar.errors import ConfigError
from agar.tool_servers.service import Service

BUILT_IN: Mapping[str, str] = {
    "python": "agar.tool_servers.python:Python",
    "search": "agar.tool_servers.search.service:Search",
}
"""Name to `module:class`."""
GROUP = "agar.tool_servers"
"""The entry-point group in which packages name more of them."""


def known() -> dict[str, str]:
    """Every name, those of installed packages included, and its `module:class`."""
    return {**{point.name: point.value for point in entry_points(group=GROUP)}, **BUILT_IN}


def find(name: str) -> type[Service[Any]]:
    """The class of a service.

    Args:
        name: a known name, or `module:class`.

    Raises:
        ConfigError: there is no such name, module or class, or it is no service.
    """
    target = name if ":" in name else known().get(name)
    if target is None:
        raise ConfigError(f"no tool server {name!r}; there are: {', '.join(sorted(known()))}; or give module:Class")
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"tool server {name!r}: {target} cannot be imported: {error}") from error
    if not (inspect.isclass(found) and issubclass(found, Service) and hasattr(found, "settings")):
        raise ConfigError(f"tool server {name!r}: {target} is no Service with `settings`")
    return found
