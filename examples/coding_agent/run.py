"""The coding agent at the size of two cores: tasks, a policy made on the spot, a warm-up, reinforcement learning.

python -m agar.examples.coding_agent.run [--seed 1] [--dir runs/coding_agent] [--dotted.key VALUE ...]
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from agar.examples import stages
from agar.examples.coding_agent import generate
from agar.examples.stages import Learnt

HERE = Path(__file__).resolve().parent
SFT, TINY, CONFIG = HERE / "sft.toml", HERE / "tiny.toml", HERE / "config.toml"
VOCAB_SIZE = 768
"""Ids of the policy's tokenizer: as many as make the constant pieces of an episode one token each."""
HELDOUT = 64
"""Task folders that are written to be evaluated on."""


def warm_up(directory: Path, *, seed: int) -> Path | None:
    """Write the held-out task folders, make the starting policy and warm it up.

    Args:
        directory: where run folders, and the task folders in `tasks`, go.
        seed: seed of the weights and the demonstrations.

    Returns:
        The policy, a Hugging Face model folder; None where it was asked to stop before the end.

    Raises:
        AgarError: the stage failed; the message says what to do.
    """
    write_tasks(directory / "tasks")
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
    words = [f"--evaluate.0.path={directory / 'tasks'}", *overrides]
    return stages.reinforce(directory, warm, seed=seed, recipe=TINY, title="RepairSmall-v0", overrides=words)


def make(directory: Path, seed: int) -> Path:
    """Write a random policy, with a tokenizer for the texts of RepairSmall-v0."""
    from agar.recipe.start.policy import PolicyConfig

    return stages.make_for(SFT, directory, seed=seed, shape=PolicyConfig(vocab_size=VOCAB_SIZE))


def write_tasks(folder: Path) -> None:
    """Write the held-out tasks as folders, where they are not yet."""
    for index in range(HELDOUT):
        task = generate.task("small", "heldout", index)
        if not (folder / task.name).is_dir():
            task.write(folder)


def main(words: Sequence[str] | None = None) -> int:
    """Run it from the command line; 0 where it finished."""
    return stages.main(
        "coding_agent",
        warm_up,
        reinforce,
        purpose="Train a small policy to mend small repositories, on this machine.",
        done="mends {} of the repositories that it never trained on",
        words=words,
    )


if __name__ == "__main__":
    sys.exit(main())
