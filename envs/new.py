"""A new environment as a package of its own, with a test that passes."""

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from agar.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEnv:
    """What was written."""

    folder: Path
    """The package's folder."""
    package: str
    """The name under which Python imports it."""
    id: str
    """The name under which agar knows it."""


def new_env(name: str, parent: Path) -> NewEnv:
    """Write a package with one small environment.

    Args:
        name: of the package, in lower case with hyphens or underscores, for instance `word-maze`.
        parent: the folder in which its own is made.

    Raises:
        ConfigError: the name is no name of a package, or there is something already.
    """
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} cannot name a package: use lower-case letters, digits and hyphens, like word-maze")
    package, project = name.replace("-", "_"), name.replace("_", "-")
    folder = parent / project
    if folder.exists():
        raise ConfigError(f"{folder} is there already: choose another name, or remove it")
    cls = "".join(word.capitalize() for word in package.split("_"))
    words = {"project": project, "package": package, "cls": cls}
    written = {
        "pyproject.toml": "pyproject.toml.txt",
        "README.md": "README.md.txt",
        "train.toml": "train.toml.txt",
        f"src/{package}/__init__.py": "env.py.txt",
        f"tests/test_{package}.py": "test_env.py.txt",
    }
    for target, template in written.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(template, words), "utf-8")
    return NewEnv(folder=folder, package=package, id=f"{cls}-v0")


def _filled(template: str, words: Mapping[str, str]) -> str:
    return Template(files("agar.envs").joinpath("template", template).read_text("utf-8")).substitute(words)
