"""ReTool at the size of two cores: a policy made on the spot, a warm-up, reinforcement learning, the picture of it.

python -m agar.examples.retool.run [--seed 1] [--dir runs/retool] [--dotted.key VALUE ...]
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from agar.examples import stages
from agar.examples.stages import Learnt

HERE = Path(__file__).resolve().parent
SFT, TINY, CONFIG = HERE / "sft.toml", HERE / "tiny.toml", HERE / "config.toml"


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
    return stages.warm_up(directory, seed=seed, recipe=SFT, make=make)


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
    return stages.reinforce(directory, warm, seed=seed, recipe=TINY, title="ReToolSmall-v0", overrides=overrides)


def make(directory: Path, seed: int) -> Path:
    """Write a random policy, with a tokenizer for the texts of ReToolSmall-v0."""
    return stages.make_for(SFT, directory, seed=seed)


def main(words: Sequence[str] | None = None) -> int:
    """Run it from the command line; 0 where it finished."""
    return stages.main(
        "retool",
        warm_up,
        reinforce,
        purpose="Train a small policy to work problems out with Python.",
        done="solves {} of the problems that it never trained on",
        words=words,
    )


if __name__ == "__main__":
    sys.exit(main())
