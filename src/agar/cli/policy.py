"""`agar policy ENV DIR`: a tiny policy to start from, made for an environment on the spot and warmed up on it."""

import argparse
from pathlib import Path


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the environment and the folder."""
    parser.add_argument(
        "env", metavar="ENV", help="its id, for instance Calc-v0, or module:Id-v0; it must have a gold()"
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="where to write it; the policy is in DIR/warm")
    parser.add_argument("--seed", type=int, default=1, help="seed of the weights and of the demonstrations")


def run(options: argparse.Namespace) -> int:
    """Make it, warm it up, say what to run next.

    Raises:
        ConfigError: there is no such environment, or it has no gold().
    """
    from agar.cli.train import stage
    from agar.config import resolve
    from agar.recipe.config import Recipe
    from agar.recipe.start import WARM_UP
    from agar.recipe.start.folder import link
    from agar.recipe.start.policy import make
    from agar.recipe.start.transcripts import texts

    start, warm = options.dir / "start", options.dir / "warm"
    words = [
        f"--demonstrations.env={options.env}",
        f"--policies.main.model={start}",
        f"--run.dir={options.dir}",
        f"--run.seed={options.seed}",
        *options.overrides,
    ]
    recipe = resolve(Recipe, files=[WARM_UP], overrides=words).config
    assert recipe.demonstrations is not None
    make(start, texts(recipe.demonstrations), seed=recipe.run.seed)
    print(f"{start}: a random model, and a tokenizer for the texts of {options.env}", flush=True)
    result = stage("sft", WARM_UP, words)
    if result.stopped or result.checkpoint is None:
        print(f"stopped before the end; go on with: agar sft --resume {result.folder.path}")
        return 130
    link(warm, result.checkpoint.path / "main" / "hf")
    print(
        f"{warm}: the same after imitating {recipe.run.steps * recipe.demonstrations.trajectories_per_step} episodes. "
        f"Next:\n  agar train RECIPE.toml --policies.main.model {warm}"
    )
    return 0
