"""The registry of commands.

A command is a module with two functions:

- `add_parser(parser)` adds its arguments to the command's own parser;
- `run(options)` does the work and returns the exit code; `options` is the parsed namespace.

Naming it here is all that is needed; the module is imported when the command is given, so that `agar --help` stays
fast. A command with `overrides=True` takes any further `--dotted.key value` words, which arrive, unread, in
`options.overrides` for `agar.config.resolve`.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast


class CommandModule(Protocol):
    """What the module of a command has."""

    def add_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Do the work; returns the exit code."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of `agar`.

    Attributes:
        module: where it is.
        help: its line in `agar --help`.
        overrides: whether it takes dotted settings.
    """

    module: str
    help: str
    overrides: bool = False

    def load(self) -> CommandModule:
        """Import the module."""
        return cast(CommandModule, import_module(self.module))


COMMANDS: Mapping[str, Command] = {
    "train": Command(
        module="agar.cli.train", help="train a recipe's policies by reinforcement learning", overrides=True
    ),
    "sft": Command(module="agar.cli.train", help="train a recipe's policy on demonstrations", overrides=True),
    "policy": Command(
        module="agar.cli.policy",
        help="make a tiny policy for an environment, and warm it up on gold turns",
        overrides=True,
    ),
    "rollout": Command(module="agar.cli.rollout", help="play a recipe's tasks and keep the traces", overrides=True),
    "eval": Command(module="agar.cli.evaluate", help="play a recipe's evaluations", overrides=True),
    "view": Command(module="agar.cli.view", help="make one HTML page of a run: rewards, episodes, tokens"),
    "compare": Command(module="agar.cli.compare", help="draw the rewards of several runs into one picture"),
    "audit": Command(module="agar.cli.audit", help="check that saved traces keep the ledger's invariants"),
    "export": Command(
        module="agar.cli.export", help="write a run's episodes in the shape of slime, verl, ATIF, parquet"
    ),
    "env": Command(module="agar.cli.env", help="list, check, write or play environments"),
    "family": Command(
        module="agar.cli.family", help="list chat-template families, or check that one fits a model's template"
    ),
    "tools": Command(module="agar.cli.tools", help="list tool servers, or serve one over HTTP or MCP", overrides=True),
    "sandbox": Command(
        module="agar.cli.sandbox", help="check this machine's sandboxes, or serve them over HTTP", overrides=True
    ),
    "doctor": Command(module="agar.cli.doctor", help="find what this machine lacks, and say the fix"),
}
