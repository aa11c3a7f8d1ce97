"""Search-R1 at the size of two cores: a policy made on the spot, a warm-up, reinforcement learning, the picture of it.

python -m agar.examples.search_r1.run [--seed 1] [--dir runs/search_r1] [--dotted.key VALUE ...]
"""

import sys
from pathlib import Path

from agar.examples import stages
from agar.examples.search_r1.corpus import NAMES
from agar.examples.search_r1.library import chosen, definitions, names_of
from agar.examples.stages import Example

HERE = Path(__file__).resolve().parent
SFT, TINY, CONFIG = HERE / "sft.toml", HERE / "tiny.toml", HERE / "config.toml"
_TEXT_IDS = 512
"""Ids for everything but names."""


def make(directory: Path, seed: int) -> Path:
    """Write a random policy with an id for every name that is asked about, wide enough to copy any of them."""
    from agar.recipe.start.policy import PolicyConfig

    names = names_of(chosen(definitions(), names=NAMES))
    shape = PolicyConfig(
        ffn_size=512,
        initializer_range=0.1,
        common_scale=1.0,
        vocab_size=-(-(_TEXT_IDS + len(names)) // 64) * 64,
    )
    return stages.make_for(SFT, directory, seed=seed, shape=shape, names=names)


EXAMPLE = Example(
    name="search_r1",
    title="SearchR1-v0",
    sft=SFT,
    train=TINY,
    make=make,
    purpose="Train a small policy to answer questions by searching.",
    done="answers {} of the questions that it never trained on",
)

if __name__ == "__main__":
    sys.exit(EXAMPLE.main())
