"""`agar doctor`: what this machine lacks, and the fix."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from agar.cli.checks import CHECKS, Finding, Status

MARKS = {Status.OK: "ok  ", Status.NOTE: "note", Status.MISSING: "MISS"}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print the findings as a JSON list")


def run(options: argparse.Namespace) -> int:
    """Run every check; 1 where something that training needs is missing."""
    found = examine(CHECKS)
    print(json.dumps([asdict(finding) for finding in found], indent=2) if options.json else "\n".join(lines(found)))
    return 1 if any(finding.status is Status.MISSING for finding in found) else 0


def examine(checks: Sequence[Callable[[], Iterator[Finding]]]) -> list[Finding]:
    """The findings of all checks; one that breaks is a finding itself, and the others still run."""
    found: list[Finding] = []
    for check in checks:
        try:
            found.extend(check())
        except Exception as error:
            name = getattr(check, "__name__", "check")
            found.append(
                Finding(
                    name=name,
                    status=Status.MISSING,
                    found=f"the check failed: {type(error).__name__}: {error}",
                    fix="run `make env`; if that does not help, this is a bug",
                )
            )
    return found


def lines(found: Sequence[Finding]) -> list[str]:
    """The findings for reading, and a closing line."""
    width = max((len(finding.name) for finding in found), default=0)
    text: list[str] = []
    for finding in found:
        text.append(f"{MARKS[finding.status]}  {finding.name:<{width}}  {finding.found}")
        if finding.fix:
            text.append(f"{'':<{width + 6}}  -> {finding.fix}")
    missing = sum(finding.status is Status.MISSING for finding in found)
    text.append(
        "everything that training needs is here" if not missing else f"{missing} missing: do what the arrows say"
    )
    return text
