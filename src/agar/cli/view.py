"""`agar view RUN`: one HTML page of a run."""

import argparse
import sys
from pathlib import Path

from agar.errors import ConfigError

EPISODES = 300


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the run, where the page goes, and how much is on it."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder that a run printed")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (RUN/view.html)")
    parser.add_argument(
        "--episodes", type=int, default=EPISODES, metavar="N", help=f"show at most N episodes ({EPISODES})"
    )


def run(options: argparse.Namespace) -> int:
    """Write the page and say what is not on it.

    Raises:
        ConfigError: this is no run folder, or the page cannot be written.
    """
    if options.episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, got {options.episodes}")
    from agar.recipe.folder import RunFolder
    from agar.recipe.page.write import write_page

    folder = RunFolder.open(options.run)
    page = write_page(folder, options.out or folder.path / "view.html", episodes=options.episodes)
    left_out = page.total - page.shown - page.unreadable
    more = f", {left_out} left out (--episodes shows more)" if left_out else ""
    print(f"{page.path}: {page.shown} of {page.total} episodes{more}")
    if page.unreadable:
        print(f"{page.unreadable} lines are no traces: agar audit {options.run} says why", file=sys.stderr)
    for policy in page.without_text:
        print(f"no tokenizer of {policy} was found: the page shows token ids", file=sys.stderr)
    return 0
