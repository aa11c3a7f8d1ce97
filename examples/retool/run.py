"""ReTool at the size of two cores: a policy made on the spot, a warm-up, reinforcement learning, the picture of it.

python -m agar.examples.retool.run [--seed 1] [--dir runs/retool] [--dotted.key VALUE ...]
"""

import sys
from pathlib import Path

from agar.examples.stages import Example

HERE = Path(__file__).resolve().parent
SFT, TINY, CONFIG = HERE / "sft.toml", HERE / "tiny.toml", HERE / "config.toml"
EXAMPLE = Example(
    name="retool",
    title="ReToolSmall-v0",
    sft=SFT,
    train=TINY,
    purpose="Train a small policy to work problems out with Python.",
    done="solves {} of the problems that it never trained on",
)

if __name__ == "__main__":
    sys.exit(EXAMPLE.main())
