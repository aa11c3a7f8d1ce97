"""What `make quickstart` does: a random policy, a warm-up, reinforcement learning, and the picture of it.

    python -m agar.examples.quickstart.run [--seed 1] [--dir runs/quickstart] [--dotted.key VALUE ...]

Every stage is a command of its own as well; the line that would run it is printed first.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agar.errors import AgarError, UnsupportedPlatformError

if TYPE_CHECKING:
    from agar.recipe.train import Result

HERE = Path(__file__).resolve().parent
SFT, TRAIN = HERE / "sft.toml", HERE / "train.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the quickstart came to.

    Attributes:
        before: mean held-out reward of the warmed-up policy, sampled at temperature 1.
        after: the same after reinforcement learning.
        folder: the run folder of the reinforcement learning.
        policy: the trained policy, a Hugging Face model folder.
        seconds: wall time of each stage.
    """

    before: float
    after: float
    folder: Path
    policy: Path
    seconds: dict[str, float]


def quickstart(directory: Path, *, seed: int, overrides: Sequence[str] = ()) -> Outcome | None:
    """Make the policy, warm it up, train it, draw the picture.

    Args:
        directory: where run folders go.
        seed: seed of the weights, the demonstrations and the tasks.
        overrides: dotted settings of the reinforcement learning, as on the command line.

    Returns:
        The outcome; None where it was asked to stop before the end.

    Raises:
        AgarError: a stage failed; the message says what to do.
    """
    from agar.examples.quickstart.plot import draw
    from agar.examples.quickstart.policy import make

    clock = _Clock()
    start = make(directory / f"start-{seed}", seed=seed)
    clock.stage("policy")
    shared = [f"--run.dir={directory}", f"--run.seed={seed}"]
    warmed = _stage("sft", SFT, [f"--policies.main.model={start}", *shared])
    clock.stage("warm-up")
    if warmed.stopped or warmed.checkpoint is None:
        return None
    warm = warmed.checkpoint.path / "main" / "hf"
    words = [f"--policies.main.model={warm}", f"--engines.python={engine_python()}", *shared, *overrides]
    trained = _stage("train", TRAIN, words)
    clock.stage("reinforcement learning")
    if trained.stopped or trained.checkpoint is None or not trained.after:
        return None
    draw(trained.folder.metrics, trained.folder.picture, title=f"Hunt-v0, seed {seed}")
    return Outcome(
        before=trained.before[0].reward_mean,
        after=trained.after[0].reward_mean,
        folder=trained.folder.path,
        policy=trained.checkpoint.path / "main" / "hf",
        seconds=clock.seconds,
    )


def engine_python() -> str:
    """The interpreter that has SGLang.

    Raises:
        UnsupportedPlatformError: none was found.
    """
    from agar.cli.checks import engine_python as find

    found = find()
    if found is None:
        raise UnsupportedPlatformError("no environment with SGLang: run `make env`, or set AGAR_ENGINE_PYTHON")
    return found


def missing() -> list[str]:
    """What this machine lacks, one line each with its remedy."""
    from agar.cli.checks import CHECKS, Status
    from agar.cli.doctor import examine

    return [
        f"{finding.name}: {finding.found}; {finding.fix}"
        for finding in examine(CHECKS)
        if finding.status is Status.MISSING
    ]


def _stage(command: Literal["sft", "train"], recipe: Path, overrides: Sequence[str]) -> "Result":
    """One command of `agar`, within this process."""
    from agar.cli.train import train
    from agar.config import resolve
    from agar.recipe.config import Recipe
    from agar.recipe.folder import RunFolder

    print(f"\n$ agar {command} {recipe} {' '.join(overrides)}", flush=True)
    resolved = resolve(Recipe, files=[recipe], overrides=overrides)
    resolved.config.check(command)
    folder = RunFolder.create(resolved.config.run.dir, resolved.config.run.name)
    folder.recipe.write_text(resolved.json())
    return train(resolved.config, folder, None, training=command == "train")


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def stage(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._last = now - self._last, now


def main(words: Sequence[str] | None = None) -> int:
    """Run the quickstart from the command line; 0 where it finished."""
    parser = argparse.ArgumentParser(description="Train a small agent with reinforcement learning on this machine.")
    parser.add_argument("--seed", type=int, default=1, help="seed of weights, demonstrations and tasks")
    parser.add_argument("--dir", type=Path, default=Path("runs/quickstart"), help="where run folders go")
    options, overrides = parser.parse_known_args(words)
    if lacking := missing():
        print("this machine lacks something that the quickstart needs:", *lacking, sep="\n  ", file=sys.stderr)
        return 1
    try:
        outcome = quickstart(options.dir, seed=options.seed, overrides=overrides)
    except AgarError as error:
        print(f"\nthe quickstart stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    if outcome is None:
        print("\nstopped before the end", file=sys.stderr)
        return 130
    stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome.seconds.items())
    print(
        f"\nlearnt: the agent now finds the gold in {outcome.after:.0%} of hunts that it never trained on, "
        f"{outcome.before:.0%} before ({stages}); picture: {outcome.folder / 'reward.png'}"
    )
    print(f"next: agar eval {TRAIN} --policies.main.model {outcome.policy} --engines.python {engine_python()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
