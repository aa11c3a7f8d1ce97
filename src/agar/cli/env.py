"""`agar env list`, `check ENV`, `new NAME`, `play ENV`."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every environment that is registered, those of packages included")
    listing.add_argument("--json", action="store_true", help="print a JSON list")
    check = actions.add_parser("check", help="does an environment keep the contract, level by level?")
    _add_env(check)
    check.add_argument("--levels", default="", metavar="L0,L1", help="check these levels only; all of them by default")
    check.add_argument("--json", action="store_true", help="print the report as JSON")
    new = actions.add_parser("new", help="write a package with a small environment and its test")
    new.add_argument("name", metavar="NAME", help="the package's name, for instance word-maze")
    new.add_argument("--dir", type=Path, default=Path(), help="the folder to write it in; the current one by default")
    play = actions.add_parser("play", help="play an environment yourself, in the terminal")
    _add_env(play)
    play.add_argument("--split", default="train", help="the split of its tasks; train by default")
    play.add_argument("--task", type=int, default=0, help="the number of the task; 0 by default")


def run(options: argparse.Namespace) -> int:
    """List, check, write or play.

    Raises:
        ConfigError: there is no such environment, level or task, or a name cannot be used.
    """
    match options.action:
        case "list":
            return show_list(as_json=options.json)
        case "check":
            return check(options.env, levels=options.levels, kwargs=options.kwargs, as_json=options.json)
        case "new":
            return new(options.name, options.dir)
    return play(options.env, kwargs=options.kwargs, split=options.split, index=options.task)


def _add_env(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "env", metavar="ENV", help="its id, for instance Hunt-v0, or module:Id-v0 to import a module first"
    )
    parser.add_argument(
        "--kwargs", type=_object, default={}, metavar="JSON", help="arguments of its constructor, as a JSON object"
    )


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'expected a JSON object such as {{"size": 3}}, got {text}')
    return found


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
        print(json.dumps([asdict(entry) for entry in found], indent=2))
        return 0
    width = max((len(entry.id) for entry in found), default=2)
    print(f"{'id':<{width}}  turns  made by")
    for entry in found:
        print(f"{entry.id:<{width}}  {entry.max_turns or '-':>5}  {entry.entry_point}")
    return 0


def check(name: str, *, levels: str = "", kwargs: dict[str, Any] | None = None, as_json: bool = False) -> int:
    """Run the conformance kit over an environment, in a process that it may end; 1 where a level fails."""
    from agar.cli.env_check import check_apart
    from agar.envs.checker import LEVELS

    wanted = [level.strip() for level in levels.split(",")] if levels else [*LEVELS, "L5"]
    report = check_apart(name, kwargs=kwargs or {}, levels=wanted)
    print(json.dumps({**asdict(report), "ok": report.ok}, indent=2) if as_json else report)
    return 0 if report.ok else 1


def new(name: str, parent: Path) -> int:
    """Write a package and say what to do with it."""
    from agar.envs.new import new_env

    made = new_env(name, parent)
    print(
        f"{made.folder}: an environment with a test that passes. Next:\n"
        f"  cd {made.folder}\n"
        "  python -m pip install -e . && pytest\n"
        f"  agar env check {made.id}\n"
        f"  agar env play {made.id}\n"
        f"  agar policy {made.id} runs && agar train train.toml"
    )
    return 0


def play(name: str, *, kwargs: dict[str, Any], split: str, index: int) -> int:
    """Let a person play one task.

    Raises:
        ConfigError: there is no such environment or task.
        EnvError: what the environment raises, in a line.
    """
    import asyncio

    from agar.envs.by_hand import HELP, play_by_hand
    from agar.envs.contract import told
    from agar.envs.registry import make, spec
    from agar.envs.runner import as_async
    from agar.errors import AgarError, ConfigError, EnvError

    tasks = spec(name).tasks(split)
    if not 0 <= index < len(tasks):
        raise ConfigError(f"--task {index}: {name} has {len(tasks)} tasks in {split}, counted from 0")

    def read() -> str | None:
        print("> ", end="", flush=True)
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None

    async def session() -> int:
        async with as_async(make(name, **kwargs)) as runner:
            print(HELP + "\n")
            played = await play_by_hand(runner, tasks[index], read=read, write=print)
        print(f"{played.turns} turn(s), reward {played.reward:g}{'' if played.over else ', left before the end'}")
        return 0

    try:
        return asyncio.run(session())
    except AgarError:
        raise
    except Exception as error:
        raise EnvError(f"{name} raised {told(error)}; --debug shows where") from error
