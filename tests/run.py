"""Runs everything that CI runs, section by section, and prints how long each took.

A failing section does not stop the next one; the exit code at the end is 1 if any failed. A process that a section
leaves behind is a failure of that section: it is found by a variable in its environment and by who started it, is
named, and is ended.

Usage: python tests/run.py [--only SECTION ...] [-- pytest arguments]
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agar.trainer.ray.watchdog import WATCH_S, Family

CHECKOUT = Path(__file__).resolve().parent.parent
MARK = "AGAR_TEST_RUN"
SECTION_LIMIT_S = 2100
GRACE_S = 10.0

STATIC = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
    "mypy of scripts": [
        "mypy",
        "requirements",
        "benchmarks",
        "tests/run.py",
        "tests/conftest.py",
        "tests/verify",
        "tests/mutations",
    ],
    "import layers": ["lint-imports"],
}
SECTIONS = {
    "static": "static checks",
    "fast": "fast tests",
    "sandbox": "sandbox",
    "clients": "agent programs",
    "engines": "engines (SGLang)",
    "trainer": "trainer (Megatron-core, Ray)",
    "end-to-end": "end to end",
    "docs": "docs and examples",
}


@dataclass(kw_only=True)
class Report:
    """What a section came to."""

    name: str
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("passed", "failed", "skipped"), 0))
    problems: list[str] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        """Whether it failed."""
        return bool(self.problems) or self.counts["failed"] > 0


def run(command: Sequence[str], env: Mapping[str, str], family: Family) -> tuple[int, str]:
    """Run one command of the environment's bin folder with a limit; its exit code, and why it was ended if it was."""
    deadline = time.monotonic() + SECTION_LIMIT_S
    program = str(Path(sys.executable).parent / command[0])
    process = subprocess.Popen(
        [program, *command[1:]], cwd=CHECKOUT, env=env, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while time.monotonic() < deadline:
            try:
                return process.wait(timeout=WATCH_S), ""
            except subprocess.TimeoutExpired:
                family.look()  # who starts whom can only be seen while it lives
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return 1, f"ended after {SECTION_LIMIT_S} s: {' '.join(command)}"
    except BaseException:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=GRACE_S)
        raise


def static(report: Report, env: Mapping[str, str], family: Family) -> None:
    """Lint, format, types, layers."""
    for title, command in STATIC.items():
        began = time.monotonic()
        code, why = run(command, env, family)
        report.counts["failed" if code else "passed"] += 1
        if code:
            report.problems.append(why or f"{title} found something")
        say(f"{title}: {'failed' if code else 'ok'}, {time.monotonic() - began:.1f} s")


def tests(section: str, report: Report, env: Mapping[str, str], family: Family, extra: Sequence[str]) -> None:
    """One section of pytest."""
    with tempfile.TemporaryDirectory(prefix="agar-junit-") as folder:
        junit = Path(folder) / "report.xml"
        flags = [f"--section={section}", f"--junitxml={junit}", "--durations=5", "--durations-min=5", "-q"]
        code, why = run(["pytest", *flags, *extra], env, family)
        if code not in {0, 5}:  # 5: a section without tests
            report.problems.append(why or f"pytest ended with code {code}")
        if junit.exists():
            count(junit, report)


def count(junit: Path, report: Report) -> None:
    """Read how many tests passed, failed and were skipped."""
    for suite in ET.parse(junit).getroot().iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        report.counts["failed"] += failed
        report.counts["skipped"] += skipped
        report.counts["passed"] += max(int(suite.get("tests", 0)) - failed - skipped, 0)


def clean_up(family: Family, report: Report) -> None:
    """Wait a little for a section's processes to go; name and end those that do not."""
    deadline = time.monotonic() + GRACE_S
    while (rest := family.look()) and time.monotonic() < deadline:
        time.sleep(0.5)
    for pid in rest:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120].strip()
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue  # it went after all
        report.problems.append(f"left behind: {command} (pid {pid})")


def one(name: str, extra: Sequence[str]) -> Report:
    """Run a section."""
    say(f"\n===== {SECTIONS[name]} =====")
    report, mark, began = Report(name=SECTIONS[name]), uuid.uuid4().hex, time.monotonic()
    family = Family(f"{MARK}={mark}".encode())
    env = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if name == "static":
        static(report, env, family)
    else:
        tests(name, report, env, family, extra)
    clean_up(family, report)
    report.seconds = time.monotonic() - began
    return report


def summary(reports: Sequence[Report]) -> None:
    """The table of sections, what went wrong, and a closing line in pytest's form."""
    say(f"\n{'section':<32}{'passed':>8}{'failed':>8}{'skipped':>9}{'time':>9}")
    for report in reports:
        row = "".join(
            f"{report.counts[kind]:>{width}}" for kind, width in [("passed", 8), ("failed", 8), ("skipped", 9)]
        )
        clock = f"{int(report.seconds) // 60}:{int(report.seconds) % 60:02d}"
        say(f"{report.name:<32}{row}{clock:>9}{'  FAILED' if report.bad else ''}")
    for report in reports:
        for problem in report.problems:
            say(f"FAILED {report.name}: {problem}")
    totals = {kind: sum(report.counts[kind] for report in reports) for kind in ("failed", "passed", "skipped")}
    totals["failed"] += sum(1 for report in reports if report.problems and not report.counts["failed"])
    words = ", ".join(f"{number} {kind}" for kind, number in totals.items() if number or kind == "passed")
    say(f"\n===== {words} in {sum(report.seconds for report in reports):.2f}s =====")


def say(text: str) -> None:
    """Print one line at once, so that it stands before what the next command prints."""
    print(text, flush=True)


def main() -> int:
    """Run the sections; 1 if any failed or if no test ran at all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    options = parser.parse_args()
    # A shell starts what it puts into the background with interrupts ignored, and so would every program under test be.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reports = [one(name, options.pytest) for name in options.only]
    summary(reports)
    return 1 if any(report.bad for report in reports) or not any(r.counts["passed"] for r in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
