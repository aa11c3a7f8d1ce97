"""Runs the jobs of `jobs.toml`: learning runs, kills, long fuzzing. Goes on where it stopped; writes docs/measured/.

A job that holds is not run again until something that it covers changes; one that failed, or was cut off, is. After
each job, the page of its group is written anew: what was claimed, what was measured, at which commit, on what machine.
A row that another checkout on a machine of the same shape has measured stays.

Usage: python tests/verify/run.py [--only NAME ...] [--list] [--again]
"""

import argparse
import hashlib
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from agar.config import BaseConfig

CHECKOUT = Path(__file__).resolve().parent.parent.parent
MEASURED = CHECKOUT / "docs" / "measured"
KEPT = CHECKOUT / ".cache" / "verify"

CHANGED = ", what it covers has changed since"

Number = float | int | str | bool


class Job(BaseConfig):
    """One claim and the command that tests it."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Its name; unique."""
    group: str = Field(pattern=r"^[a-z0-9-]+$")
    """The page in docs/measured/ that it is reported on."""
    claim: str
    """What must hold, in a sentence."""
    command: tuple[str, ...]
    """What to run, in the checkout. `{python}`, `{bin}` and `{out}` stand for the environment's Python, its folder of
    programs, and an empty folder for results; the keys of `each` for their values. If the command writes
    `{out}/result.json`, a flat table, its entries are what was measured; else, if it runs pytest, the number of tests
    that passed and the suite's properties are. An exit code other than 0 fails the job."""
    checks: dict[str, str] = Field(default_factory=dict)
    """Bounds on entries of the result: `">= 0.5"`, `"<= 0.05"`, `"== 0"`, or `"0.1 .. 0.4"`, ends included."""
    each: dict[str, tuple[int | str, ...]] = Field(default_factory=dict)
    """Run it for each of these values, for instance `{ seed = [1, 2, 3] }`."""
    covers: tuple[str, ...] = (".", ":!docs/measured")
    """What its outcome depends on: folders and files of the checkout, as git's pathspecs."""
    timeout_s: float = Field(3600.0, gt=0)
    """It is ended, and has failed, after this long."""


class Report(BaseConfig):
    """What a job came to."""

    name: str
    """The job's name."""
    definition: str
    """Hash of the job as it was run."""
    sources: str
    """Hash of what it covers, as it was run."""
    commit: str
    """The commit that was checked out."""
    holds: bool
    """Whether its claim held."""
    why: str
    """What did not hold."""
    measured: dict[str, Number]
    """The entries of its result."""
    seconds: float
    """How long it took."""
    date: str
    """When it ended, UTC."""


class Jobs(BaseConfig):
    """The file."""

    job: tuple[Job, ...]
    """All jobs."""


def read_jobs(path: Path) -> list[Job]:
    """Every job, those with `each` once for each value."""
    found: list[Job] = []
    for job in Jobs.model_validate(tomllib.loads(path.read_text())).job:
        for values in itertools.product(*job.each.values()):
            given = dict(zip(job.each, values, strict=True))
            suffix = "".join(f"-{key}-{value}" for key, value in given.items())
            command = tuple(_fill(word, given) for word in job.command)
            found.append(job.model_copy(update={"name": job.name + suffix, "command": command}))
    names = [job.name for job in found]
    assert len(set(names)) == len(names), f"two jobs have one name: {sorted({n for n in names if names.count(n) > 1})}"
    return found


def _fill(word: str, values: Mapping[str, object]) -> str:
    for key, value in values.items():
        word = word.replace(f"{{{key}}}", str(value))
    return word


def run(job: Job, folder: Path) -> Report:
    """Run a job in a folder of its own, and say what it came to."""
    shutil.rmtree(folder, ignore_errors=True)
    out = folder / "out"
    out.mkdir(parents=True)
    places = {"python": sys.executable, "bin": Path(sys.executable).parent, "out": out}
    state, at = sources(job), commit()
    began = time.monotonic()
    with (folder / "output.log").open("w") as log:
        process = subprocess.Popen(
            [_fill(word, places) for word in job.command], cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, env=environment(out), start_new_session=True,
        )  # fmt: skip
        try:
            code, why = process.wait(timeout=job.timeout_s), ""
        except subprocess.TimeoutExpired:
            code, why = 1, f"ended after {job.timeout_s:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    if code and not why:
        why = f"exit code {code}; see {(folder / 'output.log').relative_to(CHECKOUT)}"
    found = measured(out)
    wrong = [why] if why else [text for key, bound in job.checks.items() if (text := broken(found, key, bound))]
    report = Report(
        name=job.name, definition=definition(job), sources=state, commit=at, holds=not wrong, why="; ".join(wrong),
        measured=found, seconds=round(time.monotonic() - began, 1),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
    )  # fmt: skip
    (folder / "report.json").write_text(report.model_dump_json(indent=2))
    return report


def environment(out: Path) -> dict[str, str]:
    """What a job's command sees; a pytest that it runs says there what came of it."""
    options = f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={shlex.quote(str(out / 'junit.xml'))}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTEST_ADDOPTS": options.strip()}


def measured(out: Path) -> dict[str, Number]:
    """What a command has left of its result."""
    if (out / "result.json").exists():
        result: dict[str, Number] = json.loads((out / "result.json").read_text())
        return result
    if not (out / "junit.xml").exists():
        return {}
    suite = ET.parse(out / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    tests, *others = (int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped"))
    properties = {each.attrib["name"]: float(each.attrib["value"]) for each in suite.iterfind("properties/property")}
    return {"passed": tests - sum(others), **properties}


def broken(measured: Mapping[str, Any], key: str, bound: str) -> str | None:
    """Why an entry of a result is out of its bound; None where it is within."""
    if key not in measured:
        return f"{key} was not measured"
    value = float(measured[key])
    between = re.fullmatch(r"(\S+) \.\. (\S+)", bound)
    if between:
        good = float(between[1]) <= value <= float(between[2])
    else:
        sign, _, number = bound.partition(" ")
        limit = float(number)
        good = {">=": value >= limit, "<=": value <= limit, "==": value == limit}[sign]
    return None if good else f"{key} is {value:g}, expected {bound}"


def definition(job: Job) -> str:
    """A hash that changes with the job."""
    return hashlib.sha256(job.model_dump_json().encode()).hexdigest()[:12]


def sources(job: Job) -> str:
    """A hash of everything that a job covers."""
    tracked, changed = _git("ls-files", "--stage", "--", *job.covers), _git("diff", "--", *job.covers)
    return hashlib.sha256((tracked + changed).encode()).hexdigest()[:12]


def commit() -> str:
    """The checked-out commit, in words."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/measured")
    return f"`{_git('rev-parse', '--short=10', 'HEAD').strip()}`" + (" with uncommitted changes" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=CHECKOUT, check=True, capture_output=True, text=True, timeout=60).stdout


def kept(job: Job, folder: Path) -> Report | None:
    """The newest report of a job, if it was run as it is defined now."""
    path = folder / "report.json"
    report = Report.model_validate_json(path.read_text()) if path.exists() else None
    return report if report is not None and report.definition == definition(job) else None


def current(report: Report | None, job: Job) -> bool:
    """Whether nothing that the job covers has changed since."""
    return report is not None and report.sources == sources(job)


def machine() -> str:
    """The machine's shape, in words."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{os.cpu_count()} cores ({name[1].strip() if name else platform.machine()})",
        f"{memory:.0f} GiB of memory",
    ]
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return ", ".join(
        [
            *parts,
            f"{gpus} GPUs" if gpus else "no GPU",
            f"Linux {platform.release()}",
            f"Python {platform.python_version()}",
        ]
    )


def page(group: str, jobs: Sequence[Job], root: Path, former: str = "") -> str:
    """The page of a group, from what is kept in the folders of its jobs; rows of the former page where nothing is."""
    here = f"On {machine()}. Written by `make verify`."
    rows = former.splitlines() if here in former.splitlines() else []
    lines = [f"# Measured: {group}", "", here, ""]
    lines += ["| job | claim | holds | measured | minutes | commit | date (UTC) |", "|---|---|---|---|---|---|---|"]
    for job in jobs:
        report = kept(job, root / job.name)
        if report is None:
            told = next((row for row in rows if row.startswith(f"| {job.name} | {job.claim} |")), "")
            lines.append(dated(told, job) if told else f"| {job.name} | {job.claim} | not run | | | | |")
            continue
        checked = {key: f" ({job.checks[key]})" for key in report.measured if key in job.checks}
        numbers = ", ".join(f"{key} {_short(value)}{checked.get(key, '')}" for key, value in report.measured.items())
        verdict = "yes" if report.holds else f"**no**: {report.why}"
        at = report.commit if current(report, job) else report.commit + CHANGED
        lines.append(
            f"| {job.name} | {job.claim} | {verdict} | {numbers} | {report.seconds / 60:.1f} | {at} | {report.date} |"
        )
    return "\n".join(lines) + "\n"


def dated(row: str, job: Job) -> str:
    """A row of another checkout's, marked if what the job covers has changed since its commit or that is not known."""
    at = re.search(r"\| `([0-9a-f]+)` \|", row)
    if at is None:
        return row
    words = ["git", "diff", "--quiet", at[1], "--", *job.covers]
    if subprocess.run(words, cwd=CHECKOUT, capture_output=True, timeout=60).returncode == 0:
        return row
    return row.replace(f"`{at[1]}` |", f"`{at[1]}`{CHANGED} |")


def _short(value: Number) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def groups(jobs: Sequence[Job]) -> Iterator[tuple[str, list[Job]]]:
    """The jobs of each page."""
    for group in dict.fromkeys(job.group for job in jobs):
        yield group, [job for job in jobs if job.group == group]


def chosen(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """The jobs of these names; a name that is no job's stands for all that begin with it."""
    known = {job.name for job in jobs}
    begun = tuple(name for name in names if name not in known)
    return [job for job in jobs if job.name in names or job.name.startswith(begun)]


def main() -> int:
    """Run what is not yet reported; 1 if any claim does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="the job of this name, else those that begin so")
    parser.add_argument("--list", action="store_true", help="say what there is and what it came to")
    parser.add_argument("--again", action="store_true", help="also run what holds already")
    options = parser.parse_args()
    for name in (signal.SIGINT, signal.SIGTERM):  # also where a shell started us with interrupts ignored
        signal.signal(name, signal.default_int_handler)
    jobs = read_jobs(Path(__file__).with_name("jobs.toml"))
    wanted = chosen(jobs, options.only or [""])
    failed = 0
    for number, job in enumerate(wanted, 1):
        report = kept(job, KEPT / job.name)
        if not options.list and (options.again or report is None or not report.holds or not current(report, job)):
            print(f"[{number}/{len(wanted)}] {job.name}: {job.claim}", flush=True)
            report = run(job, KEPT / job.name)
            written = MEASURED / f"{job.group}.md"
            former = written.read_text() if written.exists() else ""
            MEASURED.mkdir(parents=True, exist_ok=True)
            written.write_text(page(job.group, dict(groups(jobs))[job.group], KEPT, former))
        failed += report is not None and not report.holds
        said = "not run yet" if report is None else "holds" if report.holds else f"DOES NOT HOLD: {report.why}"
        said += "" if report is None or current(report, job) else " (before what it covers changed)"
        took = f", {report.seconds:.0f} s" if report is not None else ""
        print(f"[{number}/{len(wanted)}] {job.name}: {said}{took}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
