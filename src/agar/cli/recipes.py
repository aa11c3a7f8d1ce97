"""What the commands that take a recipe share."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from agar.errors import ConfigError

if TYPE_CHECKING:
    from agar.config import Resolved
    from agar.recipe.config import Recipe


def add_recipe(parser: argparse.ArgumentParser, *, or_resume: bool = False) -> None:
    """Say in the usage that a recipe comes first; `take_recipe` reads it.

    It is no argument of argparse's: that would take the value of a dotted setting for it.
    """
    name = parser.prog
    if or_resume:
        parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this folder")
        parser.usage = f"{name} RECIPE [--dotted.key VALUE ...]\n       {name} --resume RUN [--dotted.key VALUE ...]"
    else:
        parser.usage = f"{name} RECIPE [options] [--dotted.key VALUE ...]"


def take_recipe(options: argparse.Namespace) -> tuple[Path | None, list[str]]:
    """The recipe's path, if the command line has one, and the settings that follow it."""
    words: list[str] = list(options.overrides)
    if words and not words[0].startswith("-") and "=" not in words[0]:
        return Path(words[0]), words[1:]
    return None, words


def read_recipe(options: argparse.Namespace) -> "Resolved[Recipe]":
    """The settings that the command line names.

    Raises:
        ConfigError: no recipe was given, or it cannot be used.
    """
    from agar.config import resolve
    from agar.recipe.config import Recipe

    path, overrides = take_recipe(options)
    if path is None:
        raise ConfigError(
            f"agar {options.command} needs a recipe, before any settings: agar {options.command} RECIPE.toml"
        )
    return resolve(Recipe, files=[path], overrides=overrides)
