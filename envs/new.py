"""A new environment as a package of its own, with a test that passes."""

import keyword
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
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
        ConfigError: the name is no name of a package, or hides one of Python's, agar's or what is installed, or
            something is in its place already.
    """
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} cannot name a package: use lower-case letters, digits and hyphens, like word-maze")
    package, project = name.replace("-", "_"), name.replace("_", "-")
    if hidden := _hidden(package):
        raise ConfigError(f"a package {package!r} would hide {hidden} from Python: choose another name")
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


def _hidden(package: str) -> str | None:
    """What could not be imported any more beside a package of that name."""
    if package in sys.stdlib_module_names or package == "test":
        return "the module of the standard library"
    if package in ("agar", "tests"):
        return f"{package!r}, which it uses itself"
    try:
        found = find_spec(package)
    except (ImportError, ValueError):  # something half-imported
        return None
    if found is not None and found.origin is not None:  # a mere folder has none
        return f"the installed package in {found.origin}"
    return None


def _filled(template: str, words: Mapping[str, str]) -> str:
    return Template(files("agar.envs").joinpath("template", template).read_text("utf-8")).substitute(words)
