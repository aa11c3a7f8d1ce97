"""Settings: the base class, TOML recipes, dotted overrides, and where each value came from.

A settings class is `BaseConfig` with bounds in its fields. `resolve` reads recipes and overrides into one frozen
object, once, and reports every mistake by key, value, expectation and nearest valid key.
"""

from agar.config.base import BaseConfig
from agar.config.resolve import Origin, Resolved, load_toml, resolve

__all__ = ["BaseConfig", "Origin", "Resolved", "load_toml", "resolve"]
