"""`agar export RUN --to SHAPE OUT`: episodes of a run in the shape of another program."""

import argparse
import sys
from pathlib import Path

SHAPES = {
    "slime": "slime's Sample, N.pt for each batch",
    "verl": "verl's AgentLoopOutput, a parquet file for each batch",
    "atif": "Harbor's trajectory format, a JSON file for each episode",
    "parquet": "agar's own training rows and traces, two parquet files",
}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add what to export, the shape and the folder."""
    parser.add_argument("target", type=Path, metavar="FILE_OR_RUN", help="a run folder, or one traces/*.jsonl of it")
    told = "; ".join(f"{name}: {text}" for name, text in SHAPES.items())
    parser.add_argument("--to", required=True, choices=tuple(SHAPES), help=told)
    parser.add_argument("out", type=Path, metavar="OUT", help="the folder to write into, new or empty")
    parser.add_argument(
        "--evaluations", action="store_true", help="export a run's evaluation episodes too; only batches otherwise"
    )
    parser.add_argument("--policy", metavar="NAME", help="take its episodes only; slime and verl train one policy")


def run(options: argparse.Namespace) -> int:
    """Write the files and say what is not in them.

    Raises:
        ConfigError: there are no traces, the folder is not empty, or the policy must be named or is not there.
        LedgerError: a line is no trace of this version.
        MissingExtraError: the shape needs a package that is not installed.
    """
    from agar.ledger.export.write import export
    from agar.ledger.saved import SavedTraces

    saved = SavedTraces.find(options.target)
    if options.target.is_dir() and not options.evaluations:
        every, saved = saved, saved.batches()
        if skipped := len(every.files) - len(saved.files):
            print(f"{skipped} evaluation files are left out (--evaluations takes them too)", file=sys.stderr)
    report = export(saved, options.to, options.out, policy=options.policy)
    print(f"{options.out}: {report.rows} rows of {report.episodes} episodes in {report.files} files")
    for reason, count in sorted(report.without_rows.items()):
        print(f"  {count} episodes gave no row: {reason}")
    for name, text in report.unread.items():
        print(f"  not in {options.to}'s shape, of {report.concerned[name]} episodes: {name} ({text})")
    return 0
