"""`agar compare RUN RUN ...`: one picture of several runs, for instance of three seeds or of two settings."""

import argparse
from pathlib import Path

from agar.errors import ConfigError


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the runs, their labels, and where the picture goes."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders that runs printed")
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="a name for each (its folder's)")
    parser.add_argument("--title", default="reward", metavar="TEXT", help="what stands above")
    parser.add_argument(
        "--out", type=Path, default=Path("compare.png"), metavar="FILE", help="the picture (%(default)s)"
    )


def run(options: argparse.Namespace) -> int:
    """Draw the picture and say where it is.

    Raises:
        ConfigError: one is no run folder, has done no step, or there are not as many different labels as runs.
        MissingExtraError: matplotlib is not installed.
    """
    from agar.recipe.folder import RunFolder
    from agar.recipe.picture import compare

    labels = options.labels or [path.resolve().name for path in options.runs]
    if not len(set(labels)) == len(labels) == len(options.runs):
        raise ConfigError(f"{len(options.runs)} runs need as many different --labels, got {' '.join(labels)}")
    files = {}
    for label, path in zip(labels, options.runs, strict=True):
        files[label] = RunFolder.open(path).path / "metrics.jsonl"
        if not files[label].is_file():
            raise ConfigError(f"{path} has no metrics.jsonl: it has done no step yet")
    compare(files, options.out, title=options.title)
    print(options.out)
    return 0
