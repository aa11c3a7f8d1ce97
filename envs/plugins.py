"""Environments of installed packages: those with an entry point in the group `agar.envs`."""

import logging
from collections.abc import Mapping

logger = logging.getLogger(__name__)

GROUP = "agar.envs"
"""The group of entry points; each names a module that registers environments when it is imported."""

_loaded: dict[str, str | None] = {}


def load_plugins() -> Mapping[str, str | None]:
    """Import the modules that installed packages name, each once.

    Returns:
        Every entry point by name, with the reason why it could not be imported, or None where it was.
    """
    from importlib.metadata import entry_points  # slow to import, and only a name that is not known needs it

    for point in entry_points(group=GROUP):
        if point.name in _loaded:
            continue
        _loaded[point.name] = None  # before the import, which may ask for an environment itself
        try:
            point.load()
        except Exception as error:  # somebody else's package must not break agar
            _loaded[point.name] = f"{point.value} raised {type(error).__name__}: {error}"
            logger.warning("the environments of %r cannot be loaded: %s", point.name, _loaded[point.name])
    return _loaded
