"""What reset and step cost here and in GEM, TextArena and skyrl-gym, side by side in one run.

    python benchmarks/gyms.py [--rounds 5] [--out FILE]

An environment that does nothing, written as each gym would have it (`env_step.py`, `gyms_step.py`), is made, reset and
stepped, and a number-guessing game of each gym's own is played, in a process for each gym, in turn. What is said is the
median over the rounds of the ratio to agar's time in the same round. The other gyms live in an environment of their own
(`requirements/gyms.txt`), built here where it is missing. One that cannot be installed or does not run is named with
the reason, and fails nothing.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GYMS = ("gem", "textarena", "skyrl_gym")
INLINE = {"episode": "Env, reset and step", "make": "agar.make", "game": "Guess-v0, seeded reset and a guess"}
"""What the other gyms are compared with, by the names of `env_step.py`'s rows."""
DRIVEN = {
    "awaited": "AsyncEnv awaited by as_async",
    "thread": "Env in a thread by as_async",
    "process": "Env in a process of its own by as_async",
}
"""How a rollout may drive an environment; compared with reset and step called directly."""


class NotRunError(Exception):
    """A gym gave no numbers; the message says why."""


def said(command: Sequence[str], limit_s: float) -> str:
    """The last line that a program prints.

    Raises:
        NotRunError: it failed, or took longer than `limit_s`.
    """
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise NotRunError(f"{command[-1]}: nothing within {limit_s:g} s") from None
    if done.returncode:
        lines = [
            line.strip() for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line or "Error" in line
        ]
        raise NotRunError(lines[-1] if lines else f"{command[-1]}: exit code {done.returncode}")
    return done.stdout.splitlines()[-1]


def theirs() -> str:
    """The Python of the gyms' environment.

    Raises:
        NotRunError: it cannot be built.
    """
    build = [sys.executable, str(ROOT / "requirements" / "build.py"), "--only", "gyms"]
    return str(Path(said(build, 1500.0)) / "bin" / "python")


def measured(rounds: int) -> dict[str, float | str]:
    """Agar's own times in microseconds, everything else as a multiple of them, and why a gym is not among it."""
    not_run: dict[str, str] = {}
    python = ""
    try:
        python = theirs()
    except NotRunError as error:
        not_run = dict.fromkeys(GYMS, f"not installed: {error}")
    mine: list[dict[str, float]] = []
    others: dict[str, list[dict[str, Any]]] = {gym: [] for gym in GYMS}
    for _ in range(rounds):
        mine.append(json.loads(said([sys.executable, "-P", "benchmarks/env_step.py"], 300.0)))
        for gym in [gym for gym in GYMS if gym not in not_run]:
            try:
                others[gym].append(json.loads(said([python, "-P", "benchmarks/gyms_step.py", gym], 300.0)))
            except NotRunError as error:
                not_run[gym] = f"not run: {error}"
    found: dict[str, float | str] = {f"agar_{name}_us": 1e3 * middle(mine, row) for name, row in INLINE.items()}
    for name, row in DRIVEN.items():
        found[f"agar_{name}_ratio"] = statistics.median(our[row] / our[INLINE["episode"]] for our in mine)
    for gym in GYMS:
        found[gym] = not_run[gym] if gym in not_run else str(others[gym][0]["version"])
        for name, row in INLINE.items() if gym not in not_run else ():
            if f"{name}_ms" in others[gym][0]:
                pairs = zip(others[gym], mine, strict=True)
                found[f"{gym}_{name}_ratio"] = statistics.median(their[f"{name}_ms"] / our[row] for their, our in pairs)
    return found


def middle(rounds: Sequence[dict[str, float]], row: str) -> float:
    """The median over the rounds."""
    return statistics.median(each[row] for each in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = measured(options.rounds)
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {value if isinstance(value, str) else f'{value:.4g}'}")
    if options.out is not None:
        options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
