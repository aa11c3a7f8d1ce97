"""`agar rollout`: play a recipe's tasks and keep the traces; nothing is trained."""

import argparse
import sys

from agar.cli.garbage import collecting_rarely
from agar.cli.recipes import add_recipe, read_recipe
from agar.errors import ConfigError


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe and how much to play."""
    add_recipe(parser)
    parser.add_argument("--groups", type=int, default=8, help="how many tasks, each `rollout.group_size` times (8)")


def run(options: argparse.Namespace) -> int:
    """Play and keep the traces; 1 where every episode failed.

    Raises:
        ConfigError: the recipe cannot be used; nothing has started.
    """
    if options.groups < 1:
        raise ConfigError(f"--groups must be at least 1, got {options.groups}")
    resolved = read_recipe(options)
    resolved.config.check(options.command)

    from agar.recipe.folder import RunFolder
    from agar.recipe.interrupt import run_interruptibly
    from agar.recipe.play import play_rollouts
    from agar.recipe.view import View

    recipe = resolved.config
    name = f"rollout-{recipe.run.name}"
    with (
        RunFolder.new(recipe.run.dir, name, command="rollout", settings=resolved.json()) as folder,
        View(folder, steps=0) as view,
        collecting_rarely(),
    ):
        traces = run_interruptibly(lambda: play_rollouts(recipe, folder, view, groups=options.groups))
    failed = [trace for trace in traces if not trace.outcome.trainable]
    print(f"{len(traces)} episodes: {folder.path / 'traces' / 'rollouts.jsonl'}")
    if failed:
        print(f"{len(failed)} of them failed, the last because {failed[-1].reason}", file=sys.stderr)
    return 1 if len(failed) == len(traces) else 0
