"""`agar train` and `agar sft`: train what a recipe says, or go on with a run."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agar.cli.garbage import collecting_rarely
from agar.cli.recipes import add_recipe, read_recipe, take_recipe
from agar.errors import AgarError, ConfigError

if TYPE_CHECKING:
    from agar.config import Resolved
    from agar.recipe.config import Recipe
    from agar.recipe.folder import Checkpoint, RunFolder
    from agar.recipe.train import Result


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the recipe and `--resume`."""
    add_recipe(parser, or_resume=True)


def run(options: argparse.Namespace) -> int:
    """Train; `agar sft` imitates, `agar train` reinforces.

    Raises:
        ConfigError: the recipe cannot be used; nothing has started.
    """
    with prepared(options) as (resolved, folder, checkpoint):
        print(f"run folder: {folder.path}", flush=True)
        for line in changes(resolved, checkpoint, resumed=options.resume is not None):
            print(f"  {line}", flush=True)
        try:
            result = train(resolved.config, folder, checkpoint, training=options.command == "train")
        except BaseException:
            if saved := folder.checkpoints():
                after = saved[-1].progress().step
                print(f"go on after step {after} with: agar {options.command} --resume {folder.path}", file=sys.stderr)
            raise
        conclude(result, options.command)
    return 0


def changes(resolved: "Resolved[Recipe]", checkpoint: "Checkpoint | None", *, resumed: bool) -> list[str]:
    """What a run is told apart by: of a new one all settings that are not defaults, of a resumed one what is new."""
    from agar.config import Origin

    if not resumed:
        return resolved.lines(changed_only=True)
    start = f"goes on after step {checkpoint.progress().step}" if checkpoint else "has no checkpoint, so it starts over"
    values = resolved.values()
    given = [path for path, origin in resolved.origins.items() if origin is Origin.OVERRIDE]
    return [f"the run {start}", *(f"{path} = {json.dumps(values[path], default=str)}" for path in given)]


@contextmanager
def prepared(options: argparse.Namespace) -> "Iterator[tuple[Resolved[Recipe], RunFolder, Checkpoint | None]]":
    """Read and check the settings, and make or open the run folder, which is this process's own until the end.

    Overrides of a resume stay in the folder, unless the run fails before it has saved a checkpoint under them.

    Raises:
        ConfigError: something in them is wrong.
    """
    from agar.config import resolve
    from agar.recipe.config import Recipe
    from agar.recipe.folder import RunFolder
    from agar.recipe.resume import check_resumable

    if options.resume is None:
        resolved = read_recipe(options)
        resolved.config.check(options.command)
        run = resolved.config.run
        with RunFolder.new(run.dir, run.name, command=options.command, settings=resolved.json()) as folder:
            yield resolved, folder, None
        return
    path, overrides = take_recipe(options)
    if path is not None:
        raise ConfigError(f"--resume takes the recipe from its run folder, but {path} was given too: leave one out")
    folder = RunFolder.open(options.resume, command=options.command)
    resolved = resolve(Recipe, files=[folder.recipe], overrides=overrides)
    resolved.config.check(options.command)
    with folder.claimed():
        for newest in folder.checkpoints()[-1:]:  # before anything is set aside
            check_resumable(resolved.config, newest)
        checkpoint = folder.rewind()
        before = folder.recipe.read_text()
        if overrides:
            folder.save_recipe(resolved.json())
        try:
            yield resolved, folder, checkpoint
        except AgarError:
            if folder.checkpoints()[-1:] == ([checkpoint] if checkpoint else []):  # nothing was saved under them
                folder.save_recipe(before)
            raise


def train(recipe: "Recipe", folder: "RunFolder", checkpoint: "Checkpoint | None", *, training: bool) -> "Result":
    """Run the training in this process, under Ctrl-C."""
    from agar.recipe.interrupt import run_interruptibly
    from agar.recipe.train import Run
    from agar.recipe.view import View

    resumed_at = checkpoint.progress().step if checkpoint else -1  # without a checkpoint no step counts
    with View(folder, steps=recipe.run.steps, resume_after=resumed_at) as view:
        work = Run(recipe, folder, view, resume=checkpoint)
        with collecting_rarely():
            return run_interruptibly(work.reinforce if training else work.imitate, stoppable=work)


def stage(command: Literal["train", "sft"], recipe: Path, overrides: Sequence[str]) -> "Result":
    """One command within this process, in a new run folder, for programs that are made of several.

    Args:
        command: which of the two.
        recipe: its file.
        overrides: dotted settings.

    Raises:
        ConfigError: the recipe cannot be used; nothing has started.
    """
    from agar.config import resolve
    from agar.recipe.config import Recipe
    from agar.recipe.folder import RunFolder

    resolved = resolve(Recipe, files=[recipe], overrides=overrides)
    resolved.config.check(command)
    run = resolved.config.run
    with RunFolder.new(run.dir, run.name, command=command, settings=resolved.json()) as folder:
        return train(resolved.config, folder, None, training=command == "train")


def conclude(result: "Result", command: str) -> None:
    """Draw the picture and print two lines: what was learnt, what to run next.

    Args:
        result: what the run came to.
        command: `train` or `sft`, whichever ran: the other one does not resume it.
    """
    from agar.errors import MissingExtraError
    from agar.recipe.picture import draw

    folder = result.folder
    try:
        draw(folder.metrics, folder.picture, title=folder.path.name)
    except MissingExtraError as error:
        print(f"no picture: {error}", file=sys.stderr)
    print(learnt(result))
    if result.stopped:
        print(f"go on with: agar {command} --resume {folder.path}")
    elif result.checkpoint is not None:
        policies = ", ".join(str(path) for path in sorted(result.checkpoint.path.glob("*/hf")))
        print(f"the policy is in {policies}; the episodes are in {folder.path / 'traces'}")


def learnt(result: "Result") -> str:
    """One sentence on what a run came to."""
    done = f"{result.progress.step} steps"
    changes = [
        f"{before.config.title} ({before.config.split}): reward {before.reward_mean:.2f} -> {after.reward_mean:.2f} "
        f"(± {after.standard_error:.2f})"
        for before, after in zip(result.before, result.after, strict=False)
    ]
    return f"{done}; {'; '.join(changes)}" if changes else f"{done} done"
