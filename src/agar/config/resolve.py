"""Recipes and overrides into one frozen object, once, with the origin of each value."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from agar.config.base import BaseConfig
from agar.config.overrides import apply, parse, show
from agar.config.report import explain
from agar.errors import ConfigError

Config = TypeVar("Config", bound=BaseConfig)


class Origin(StrEnum):
    """Where a value came from."""

    DEFAULT = "default"
    FILE = "file"
    OVERRIDE = "override"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(Generic[Config]):
    """A recipe after all files and overrides.

    Attributes:
        config: the frozen settings.
        origins: dotted path of every value to where it came from.
        sources: dotted path of every value that is not a default to its file name or override.
    """

    config: Config
    origins: Mapping[str, Origin]
    sources: Mapping[str, str]

    def values(self) -> dict[str, Any]:
        """Every value by dotted path, as plain JSON data."""
        return dict(leaves(self.config.model_dump(mode="json")))

    def json(self) -> str:
        """The settings as JSON that `resolve` reads back to the same settings."""
        return self.config.model_dump_json(indent=2) + "\n"

    def lines(self, *, changed_only: bool = False) -> list[str]:
        """One line for each value: path, value, origin.

        Args:
            changed_only: leave out the defaults.
        """
        rows = [
            (path, show(value), self.sources.get(path, Origin.DEFAULT.value))
            for path, value in self.values().items()
            if not changed_only or self.origins[path] is not Origin.DEFAULT
        ]
        width = max((len(f"{path} = {value}") for path, value, _ in rows), default=0)
        return [f"{f'{path} = {value}':<{min(width, 72)}}  # {source}" for path, value, source in rows]


def load_toml(path: Path) -> dict[str, Any]:
    """Read one recipe, TOML or the JSON of a resolved one.

    Raises:
        ConfigError: there is no such file, or it cannot be read as TOML (JSON if its name ends so).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror}: give the path of a TOML file") from error
    try:
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a table of settings, got {type(data).__name__}")
    return data


def resolve(model: type[Config], *, files: Sequence[Path] = (), overrides: Sequence[str] = ()) -> Resolved[Config]:
    """Read recipes and overrides; later ones win.

    Args:
        model: the settings class of the whole recipe.
        files: TOML (or resolved JSON) recipes; tables are merged, lists and single values replaced.
        overrides: command-line words: `--key value`, `--key=value`, `key=value`, keys dotted.

    Returns:
        The settings and the origin of each value.

    Raises:
        ConfigError: a file cannot be read; a key is unknown; a value has the wrong type or is out of bounds; a
            required key is missing. Names every such key, its value, what was expected, and the nearest valid key.
    """
    data: dict[str, Any] = {}
    sources: dict[str, tuple[Origin, str]] = {}
    for file in files:
        loaded = load_toml(file)
        _merge(data, loaded)
        sources.update({path: (Origin.FILE, file.name) for path, _ in leaves(loaded)})
    for override in parse(overrides):
        apply(model, data, override)
        sources[override.key] = (Origin.OVERRIDE, f"--{override.key}")
    try:
        # Strict, and by way of JSON: "8" is not a number, yet a path or an enum may be written as text.
        config = model.model_validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        raise ConfigError(explain(model, data, error, lambda path: _source(sources, path)[1])) from error
    paths = [path for path, _ in leaves(config.model_dump(mode="json"))]
    known = {path: _source(sources, path) for path in paths}
    return Resolved(
        config=config,
        origins={path: origin for path, (origin, _) in known.items()},
        sources={path: source for path, (origin, source) in known.items() if origin is not Origin.DEFAULT},
    )


def leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is not a table with entries, by dotted path; tables in a list by their number."""
    for key, value in data.items():
        path = f"{prefix}{key}"
        if isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            value = {str(number): entry for number, entry in enumerate(value)}
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _source(sources: Mapping[str, tuple[Origin, str]], path: str) -> tuple[Origin, str]:
    """The origin of a path: its own, or that of the table or value above it that was set as a whole."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        found = sources.get(".".join(parts[:length]))
        if found is not None:
            return found
    below = [found for key, found in sources.items() if key.startswith(f"{path}.")]
    return below[-1] if below else (Origin.DEFAULT, Origin.DEFAULT.value)
