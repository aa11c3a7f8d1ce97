"""The starting policy: made on the spot, with a tokenizer trained on hunts.

python -m agar.examples.quickstart.policy OUT_DIR --seed 1
"""

import argparse
from pathlib import Path

from agar.recipe.start import policy
from agar.recipe.start.policy import PolicyConfig
from agar.recipe.start.transcripts import texts
from agar.rollout.sources.config import DemonstrationsConfig, DemonstratorConfig, PhaseConfig

HUNTERS = DemonstrationsConfig(
    env="Hunt-v0",
    kwargs={"sandbox": {"backend": "fake"}},  # reading boxes is all that these agents do: nothing to isolate
    phases=(PhaseConfig(agents=(DemonstratorConfig(policy="agar.agents.hunters:imperfect_hunter"),)),),
)
"""Who plays the hunts that the tokenizer is trained on."""


def make(directory: Path, *, seed: int = 1, config: PolicyConfig | None = None) -> Path:
    """Write a randomly initialised policy with its tokenizer and chat template.

    Args:
        directory: made if missing; files of an earlier call are replaced.
        seed: seed of the weights. The tokenizer is the same for every seed.
        config: the shape; the default is the quickstart's.

    Returns:
        `directory`.

    Raises:
        ConfigError: the vocabulary is too small.
    """
    return policy.make(directory, texts(HUNTERS), seed=seed, config=config)


def main() -> None:
    """Make a policy from the command line."""
    parser = argparse.ArgumentParser(description="Make the quickstart's starting policy.")
    parser.add_argument("directory", type=Path, help="where to write it")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights")
    arguments = parser.parse_args()
    print(make(arguments.directory, seed=arguments.seed))


if __name__ == "__main__":
    main()
