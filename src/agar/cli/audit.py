"""`agar audit FILE_OR_RUN`: do saved traces keep the ledger's invariants?"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agar.ledger.families import Family
    from agar.ledger.report import AuditReport
    from agar.ledger.saved import SavedTraces

SHOWN = 5
"""Violations printed of each invariant; `--json` has them all."""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add what to audit and the form of the report."""
    parser.add_argument("target", type=Path, metavar="FILE_OR_RUN", help="a run folder, or one traces/*.jsonl of it")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="[POLICY=]DIR",
        help="a model folder with tokenizer and template: also check that prompts are its renderings (I6)",
    )
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON")


def run(options: argparse.Namespace) -> int:
    """Print the report; 1 where an invariant is broken.

    Raises:
        ConfigError: there are no traces at the target, or a model folder has no known family.
    """
    from agar.ledger.saved import SavedTraces

    saved = SavedTraces.find(options.target)
    report = saved.audit(families(options.model, saved))
    if options.json:
        print(json.dumps(as_json(report, files=len(saved.files)), indent=2))
    else:
        print("\n".join(lines(report, files=len(saved.files))))
    return 0 if report.ok else 1


def families(models: Sequence[str], saved: "SavedTraces") -> dict[str, "Family"]:
    """The family of each policy's model folder, as the run had it; `*` where no policy is named.

    Raises:
        ConfigError: a folder has no tokenizer, or a template that no family knows.
    """
    if not models:
        return {}
    from agar.ledger.families import family_for  # loads a tokenizer

    found = {}
    for each in models:
        policy, named, folder = each.rpartition("=")
        found[policy if named else "*"] = family_for(folder, thinking=saved.thinking, today=saved.today)
    return found


def as_json(report: "AuditReport", *, files: int) -> dict[str, Any]:
    """The report as JSON values."""
    return {"ok": report.ok, "files": files, **asdict(report)}


def lines(report: "AuditReport", *, files: int) -> Iterator[str]:
    """The report for people."""
    excluded = sum(report.excluded.values())
    yield f"{report.traces} traces in {files} file{'s' if files != 1 else ''}, {report.samples} training rows"
    yield f"sampled tokens    {report.sampled_tokens:>10}"
    yield f"  trained         {report.trained_tokens:>10}  {_share(report.trained_tokens, report.sampled_tokens)}"
    yield f"  excluded        {excluded:>10}  {_share(excluded, report.sampled_tokens)}"
    for reason, count in sorted(report.excluded.items()):
        yield f"    {reason.value:<18}{count:>6}"
    yield f"divergences       {sum(report.divergences.values()):>10}"
    for kind, count in sorted(report.divergences.items()):
        yield f"    {kind.value:<20}{count:>4}"
    for invariant, count in sorted(report.looked_at.items()):
        yield f"{invariant:<4} looked at     {count:>10}  traces"
    for invariant, why in sorted(report.unchecked.items()):
        yield f"{invariant:<4} not checked: {why}"
    if report.lost_turn_rewards:
        yield f"turn rewards lost {report.lost_turn_rewards:>10}  (their turns are not trained)"
    yield f"violations        {len(report.violations):>10}"
    found = sorted(report.violations, key=lambda violation: violation.invariant)
    for invariant, group in groupby(found, key=lambda violation: violation.invariant):
        some = list(group)
        for violation in some[:SHOWN]:
            yield f"    {invariant} in {violation.trajectory}: {violation.detail}"
        if len(some) > SHOWN:
            yield f"    {invariant}: {len(some) - SHOWN} more (--json prints all)"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""
