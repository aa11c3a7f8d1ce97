"""The coding agent at the size of two cores: tasks, a policy made on the spot, a warm-up, reinforcement learning.

python -m agar.examples.coding_agent.run [--seed 1] [--dir runs/coding_agent] [--dotted.key VALUE ...]
"""

import sys
from pathlib import Path

from agar.examples import stages
from agar.examples.coding_agent import generate
from agar.examples.stages import Example

HERE = Path(__file__).resolve().parent
SFT, TINY, CONFIG = HERE / "sft.toml", HERE / "tiny.toml", HERE / "config.toml"
VOCAB_SIZE = 768
"""Ids of the policy's tokenizer: as many as make the constant pieces of an episode one token each."""
HELDOUT = 64
"""Task folders that are written to be evaluated on."""


def make(directory: Path, seed: int) -> Path:
    """Write a random policy, with a tokenizer for the texts of RepairSmall-v0."""
    from agar.recipe.start.policy import PolicyConfig

    return stages.make_for(SFT, directory, seed=seed, shape=PolicyConfig(vocab_size=VOCAB_SIZE))


def prepare(directory: Path) -> list[str]:
    """Write the held-out tasks as folders in `tasks`, and say where they are."""
    write_tasks(directory / "tasks")
    return [f"--evaluate.0.path={directory / 'tasks'}"]


def write_tasks(folder: Path) -> None:
    """Write the held-out tasks as folders, where they are not yet."""
    for index in range(HELDOUT):
        task = generate.task("small", "heldout", index)
        if not (folder / task.name).is_dir():
            task.write(folder)


EXAMPLE = Example(
    name="coding_agent",
    title="RepairSmall-v0",
    sft=SFT,
    train=TINY,
    make=make,
    prepare=prepare,
    purpose="Train a small policy to mend small repositories, on this machine.",
    done="mends {} of the repositories that it never trained on",
)

if __name__ == "__main__":
    sys.exit(EXAMPLE.main())
