"""The stages of a small example: a policy made on the spot, a warm-up, reinforcement learning, a picture of it."""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agar.errors import AgarError, ConfigError

if TYPE_CHECKING:
    from agar.recipe.start.policy import PolicyConfig
    from agar.recipe.train import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What reinforcement learning came to.

    Attributes:
        before: mean held-out reward of the warmed-up policy, sampled at temperature 1.
        after: the same after reinforcement learning.
        before_error: standard error of `before`.
        after_error: standard error of `after`.
        folder: the run folder of the reinforcement learning.
        policy: the trained policy, a Hugging Face model folder.
    """

    before: float
    after: float
    before_error: float
    after_error: float
    folder: Path
    policy: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A small example: what its stages are made of.

    Attributes:
        name: its folder's; its own run folders go to `runs/NAME`.
        title: of the picture: what is played.
        sft: the recipe of its warm-up.
        train: the recipe of its reinforcement learning.
        make: writes the random policy into a folder, from a seed; None makes one for the demonstrations of `sft`.
        prepare: lays out what `train` needs in the directory of the run folders, and gives the dotted settings that
            tell of it; called before each stage, so that what cannot be written is found before anything is learnt.
        purpose: what the example is for, in a sentence.
        done: what its agent does in the end, such as "solves {} of the problems that it never trained on".
    """

    name: str
    title: str
    sft: Path
    train: Path
    make: Callable[[Path, int], Path] | None = None
    prepare: Callable[[Path], Sequence[str]] | None = None
    purpose: str
    done: str

    def start(self, directory: Path, seed: int) -> Path:
        """Write its random policy into a folder, made if missing."""
        return (self.make or _maker(self.sft))(directory, seed)

    def warm_up(self, directory: Path, *, seed: int) -> Path | None:
        """Make its starting policy and warm it up; see `warm_up` of this module."""
        self._prepare(directory)
        return warm_up(directory, seed=seed, recipe=self.sft, make=self.start)

    def reinforce(self, directory: Path, warm: Path, *, seed: int, overrides: Sequence[str] = ()) -> Learnt | None:
        """Train the warmed-up policy by reinforcement learning; see `reinforce` of this module."""
        words = [*self._prepare(directory), *overrides]
        return reinforce(directory, warm, seed=seed, recipe=self.train, title=self.title, overrides=words)

    def _prepare(self, directory: Path) -> Sequence[str]:
        return self.prepare(directory) if self.prepare is not None else ()

    def main(self, words: Sequence[str] | None = None) -> int:
        """Run it from the command line, one stage after the other.

        Args:
            words: the command line; None takes the process's own.

        Returns:
            0 where it finished, 1 where a stage failed, 130 where it was asked to stop.
        """
        parser = argparse.ArgumentParser(description=self.purpose)
        parser.add_argument("--seed", type=int, default=1, help="seed of weights, demonstrations and tasks")
        parser.add_argument("--dir", type=Path, default=Path("runs", self.name), help="where run folders go")
        options, overrides = parser.parse_known_args(words)
        try:
            warm = self.warm_up(options.dir, seed=options.seed)
            learnt = None
            if warm is not None:
                learnt = self.reinforce(options.dir, warm, seed=options.seed, overrides=overrides)
        except AgarError as error:
            print(f"\n{self.name} stopped: {error}", file=sys.stderr)
            return 1
        if learnt is None:
            print("\nstopped before the end", file=sys.stderr)
            return 130
        now = self.done.format(f"{learnt.after:.0%}")
        print(f"\nlearnt: the agent now {now}, {learnt.before:.0%} before; picture: {learnt.folder / 'reward.png'}")
        return 0


def warm_up(
    directory: Path, *, seed: int, recipe: Path, make: Callable[[Path, int], Path] | None = None
) -> Path | None:
    """Make a starting policy and let it imitate.

    Args:
        directory: where run folders go; `start` and `warm` in it name the policies made last.
        seed: seed of the weights and the demonstrations.
        recipe: what is imitated, as `agar sft` takes it.
        make: writes the random policy into a folder, from a seed; None makes one for the recipe's demonstrations.

    Returns:
        The policy, a Hugging Face model folder; None where it was asked to stop before the end.

    Raises:
        AgarError: the stage failed; the message says what to do.
    """
    from agar.recipe.start.folder import link

    start = (make or _maker(recipe))(directory / f"start-{seed}", seed)
    warmed = stage("sft", recipe, [f"--policies.main.model={start}", *_shared(directory, seed)])
    if warmed.stopped or warmed.checkpoint is None:
        return None
    warm = warmed.checkpoint.path / "main" / "hf"
    link(directory / "start", start)
    link(directory / "warm", warm)
    return warm


def reinforce(
    directory: Path, warm: Path, *, seed: int, recipe: Path, title: str, overrides: Sequence[str] = ()
) -> Learnt | None:
    """Train the warmed-up policy by reinforcement learning, and draw the picture.

    Args:
        directory: where run folders go.
        warm: the policy to start from.
        seed: seed of the tasks.
        recipe: what is played, as `agar train` takes it; its first evaluation is what is reported.
        title: of the picture; the seed is added.
        overrides: dotted settings, as on the command line.

    Returns:
        What was learnt; None where it was asked to stop before the end.

    Raises:
        AgarError: the stage failed; the message says what to do.
    """
    from agar.recipe.picture import draw

    words = [f"--policies.main.model={warm}", *_shared(directory, seed), *overrides]
    trained = stage("train", recipe, words)
    if trained.stopped or trained.checkpoint is None or not trained.after:
        return None
    draw(trained.folder.metrics, trained.folder.picture, title=f"{title}, seed {seed}")
    return Learnt(
        before=trained.before[0].reward_mean,
        after=trained.after[0].reward_mean,
        before_error=trained.before[0].standard_error,
        after_error=trained.after[0].standard_error,
        folder=trained.folder.path,
        policy=trained.checkpoint.path / "main" / "hf",
    )


def stage(command: Literal["sft", "train"], recipe: Path, overrides: Sequence[str]) -> "Result":
    """One command of `agar`, within this process; the line that would run it is printed first.

    Raises:
        AgarError: it failed.
    """
    from agar.cli.train import stage

    print(f"\n$ agar {command} {recipe} {' '.join(overrides)}", flush=True)
    return stage(command, recipe, overrides)


def make_for(
    recipe: Path, directory: Path, *, seed: int, shape: "PolicyConfig | None" = None, names: Collection[str] = ()
) -> Path:
    """Write a random policy whose tokenizer is trained on the demonstrations of a recipe.

    Args:
        recipe: what will be imitated, as `agar sft` takes it.
        directory: made if missing.
        seed: seed of the weights.
        shape: the policy's; half a million parameters by default.
        names: what has one id of its own wherever it stands between backticks.

    Raises:
        ConfigError: the recipe has no demonstrations, or the vocabulary is too small.
    """
    from agar.config import resolve
    from agar.recipe.config import Recipe
    from agar.recipe.start.policy import make
    from agar.recipe.start.transcripts import texts

    settings = resolve(Recipe, files=[recipe], overrides=[f"--policies.main.model={directory}"]).config
    if settings.demonstrations is None:
        raise ConfigError(f"{recipe} has no [demonstrations]: a tokenizer is trained on them")
    return make(directory, texts(settings.demonstrations), seed=seed, config=shape, names=names)


def _maker(recipe: Path) -> Callable[[Path, int], Path]:
    return lambda directory, seed: make_for(recipe, directory, seed=seed)


def _shared(directory: Path, seed: int) -> list[str]:
    return [f"--run.dir={directory}", f"--run.seed={seed}"]
