"""`agar env list` and `agar env check ENV`."""

import argparse
import json
from dataclasses import dataclass


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add `list` and `check`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every environment that is registered")
    listing.add_argument("--json", action="store_true", help="print a JSON list")
    check = actions.add_parser("check", help="does an environment keep the contract, level by level?")
    check.add_argument(
        "env", metavar="ENV", help="its id, for instance Hunt-v0, or module:Id-v0 to import a module first"
    )


def run(options: argparse.Namespace) -> int:
    """List, or check.

    Raises:
        ConfigError: there is no such environment.
    """
    return show_list(as_json=options.json) if options.action == "list" else check(options.env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the list."""

    id: str
    max_turns: int | None
    entry_point: str


def entries() -> list[Entry]:
    """Every registered environment, by id."""
    from agar.envs.registry import registered, spec

    found = []
    for name in sorted(registered()):
        known = spec(name)
        maker = known.entry_point
        text = maker if isinstance(maker, str) else f"{maker.__module__}:{getattr(maker, '__qualname__', maker)}"
        found.append(Entry(id=name, max_turns=known.max_turns, entry_point=text))
    return found


def show_list(*, as_json: bool) -> int:
    """Print the list."""
    found = entries()
    if as_json:
        print(
            json.dumps([{"id": e.id, "max_turns": e.max_turns, "entry_point": e.entry_point} for e in found], indent=2)
        )
        return 0
    width = max((len(entry.id) for entry in found), default=2)
    print(f"{'id':<{width}}  turns  made by")
    for entry in found:
        print(f"{entry.id:<{width}}  {entry.max_turns or '-':>5}  {entry.entry_point}")
    return 0


def check(name: str) -> int:
    """Run the conformance kit over an environment; 1 where a level fails."""
    from agar.envs.checker import check_env

    report = check_env(name)
    print(report)
    return 0 if report.ok else 1
