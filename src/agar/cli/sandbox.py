"""`agar sandbox check` and `agar sandbox serve`."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agar.sandbox.config import SandboxSpec
    from agar.sandbox.remote.config import SandboxServerConfig


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("check", "run the conformance kit over this machine's sandboxes"),
        ("serve", "serve this machine's sandboxes over HTTP until interrupted"),
    ):
        own = actions.add_parser(name, help=text, epilog="Any setting may follow: --spec.backend docker --port 8600.")
        own.add_argument("--config", type=Path, metavar="FILE", help="settings, as TOML")


def run(options: argparse.Namespace) -> int:
    """Check or serve.

    Raises:
        ConfigError: a setting cannot be used; nothing has started.
    """
    from agar.config import resolve
    from agar.sandbox.remote.config import SandboxServerConfig

    files = [options.config] if options.config else []
    config = resolve(SandboxServerConfig, files=files, overrides=options.overrides).config
    if options.action == "check":
        return asyncio.run(_check(config.spec))
    try:
        asyncio.run(_serve(config))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    return 0


async def _check(spec: "SandboxSpec") -> int:
    """Run every check and print how it went."""
    from agar.sandbox.checker import CHECKS, check_sandbox
    from agar.sandbox.factory import create

    bad = 0
    for check in CHECKS:
        report = await check_sandbox(create, spec=spec, checks=[check], isolates=spec.backend != "fake")
        bad += len(report.failed)
        for word, said in (("FAILED ", report.failed), ("refused", report.refused)):
            for name, reason in said.items():
                print(f"{word}  {name}: {reason}")
        for name in report.passed:
            print(f"held     {name}")
    return min(bad, 1)


async def _serve(config: "SandboxServerConfig") -> None:
    """Serve until cancelled."""
    from agar.sandbox.remote.server import SandboxServer

    async with SandboxServer(config) as server:
        print(f"{config.spec.backend} sandboxes on {server.url}; OpenAPI at {server.url}/openapi.json", flush=True)
        await asyncio.Event().wait()
