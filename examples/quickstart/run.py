"""What `make quickstart` does: a random policy, a warm-up, reinforcement learning, and the picture of it.

    python -m agar.examples.quickstart.run [--seed 1] [--dir runs/quickstart] [--dotted.key VALUE ...]

Every stage is a command of its own as well; the line that would run it is printed first.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agar.errors import AgarError
from agar.examples import stages
from agar.examples.stages import Learnt

HERE = Path(__file__).resolve().parent
SFT, TRAIN = HERE / "sft.toml", HERE / "train.toml"


def warm_up(directory: Path, *, seed: int) -> Path | None:
    """Make the starting policy and warm it up.

    Args:
        directory: where run folders go.
        seed: seed of the weights and the demonstrations.

    Returns:
        The policy, a Hugging Face model folder; None where it was asked to stop before the end.

    Raises:
        AgarError: the stage failed; the message says what to do.
    """
    from agar.examples.quickstart.policy import make

    return stages.warm_up(directory, seed=seed, recipe=SFT, make=lambda folder, seed: make(folder, seed=seed))


def reinforce(directory: Path, warm: Path, *, seed: int, overrides: Sequence[str] = ()) -> Learnt | None:
    """Train the warmed-up policy by reinforcement learning, and draw the picture.

    Args:
        directory: where run folders go.
        warm: the policy to start from.
        seed: seed of the tasks.
        overrides: dotted settings, as on the command line.

    Returns:
        What was learnt; None where it was asked to stop before the end.

    Raises:
        AgarError: the stage failed; the message says what to do.
    """
    return stages.reinforce(directory, warm, seed=seed, recipe=TRAIN, title="Hunt-v0", overrides=overrides)


def missing() -> list[str]:
    """What this machine lacks, one line each with its remedy."""
    from agar.cli.checks import CHECKS, Status
    from agar.cli.doctor import examine

    return [
        f"{finding.name}: {finding.found}; {finding.fix}"
        for finding in examine(CHECKS)
        if finding.status is Status.MISSING
    ]


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
        return _run(options.dir, options.seed, overrides)
    except AgarError as error:
        print(f"\nthe quickstart stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _run(directory: Path, seed: int, overrides: Sequence[str]) -> int:
    began = time.monotonic()
    warm = warm_up(directory, seed=seed)
    warmed = time.monotonic()
    learnt = None if warm is None else reinforce(directory, warm, seed=seed, overrides=overrides)
    if learnt is None:
        print("\nstopped before the end", file=sys.stderr)
        return 130
    print(
        f"\nlearnt: the agent now finds the gold in {learnt.after:.0%} of hunts that it never trained on, "
        f"{learnt.before:.0%} before (warm-up {warmed - began:.0f} s, reinforcement learning "
        f"{time.monotonic() - warmed:.0f} s); picture: {learnt.folder / 'reward.png'}"
    )
    print(f"next: {_agar()} eval {os.path.relpath(TRAIN)} --policies.main.model {learnt.policy}")
    return 0


def _agar() -> str:
    """How to call `agar` from here."""
    return "agar" if shutil.which("agar") else os.path.relpath(Path(sys.executable).parent / "agar")


if __name__ == "__main__":
    sys.exit(main())
