"""`agar eval`: play a recipe's evaluations against its models as they are on disk."""

import argparse

from agar.cli.garbage import collecting_rarely
from agar.cli.recipes import add_recipe, read_recipe


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe."""
    add_recipe(parser)


def run(options: argparse.Namespace) -> int:
    """Evaluate, print one line an evaluation, and keep the traces; 1 where no episode of one could be counted.

    Raises:
        ConfigError: the recipe cannot be used; nothing has started.
    """
    resolved = read_recipe(options)
    resolved.config.check(options.command)

    from agar.recipe.folder import RunFolder
    from agar.recipe.interrupt import run_interruptibly
    from agar.recipe.play import play_evaluations
    from agar.recipe.view import View

    recipe = resolved.config
    name = f"eval-{recipe.run.name}"
    with (
        RunFolder.new(recipe.run.dir, name, command="eval", settings=resolved.json()) as folder,
        View(folder, steps=0) as view,
        collecting_rarely(),
    ):
        results = run_interruptibly(lambda: play_evaluations(recipe, folder, view))
    print(f"episodes and numbers: {folder.path}")
    return 1 if any(result.excluded == len(result.traces) for result in results) else 0
