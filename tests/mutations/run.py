"""Puts faults into a copy of the sources, one at a time, and runs the test that must notice. Writes docs/mutations.md.

The faults are in `faults.toml`: each replaces a piece of a file, which must occur there exactly once. A fault is killed
if its test fails in the copy; an error while the tests are collected does not count. Before that, every test named must
pass in the untouched copy.

Usage: python tests/mutations/run.py [OUT] [--only NAME ...] [--write]
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import Field

from agar.config import BaseConfig

CHECKOUT = Path(__file__).resolve().parent.parent.parent
FAULTS = Path(__file__).with_name("faults.toml")
PAGE = CHECKOUT / "docs" / "mutations.md"
TEST_TIMEOUT_S = 300


class Edit(BaseConfig):
    """One piece of one file, and what stands in its place."""

    file: str = Field(pattern=r"^src/agar/.+\.py$")
    """Which file, from the checkout."""
    before: str = Field(min_length=1)
    """What stands there now, exactly once."""
    after: str
    """What the fault makes of it."""


class Fault(BaseConfig):
    """A fault that somebody could write, and the test that must notice it."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    """Its name; unique."""
    fault: str
    """What goes wrong, in a few words."""
    test: str = Field(pattern=r"^tests/.+\.py::\w+$")
    """The test, as pytest names it, without parameters."""
    edits: tuple[Edit, ...] = Field(min_length=1)
    """How to make it."""


class Faults(BaseConfig):
    """The contents of `faults.toml`."""

    fault: tuple[Fault, ...]
    """In the order of the page."""


def read_faults(path: Path = FAULTS) -> tuple[Fault, ...]:
    """Every fault of a list."""
    return Faults.model_validate(tomllib.loads(path.read_text("utf-8"))).fault


def faulty(fault: Fault, root: Path) -> Mapping[Path, str]:
    """The files of a tree as the fault leaves them.

    Raises:
        ValueError: a piece does not occur exactly once, or what comes out is not Python.
    """
    texts: dict[Path, str] = {}
    for edit in fault.edits:
        path = root / edit.file
        text = texts.get(path) or path.read_text("utf-8")
        times = text.count(edit.before)
        if times != 1:
            raise ValueError(f"{fault.name}: {edit.before!r} occurs {times} times in {edit.file}, expected once")
        texts[path] = text.replace(edit.before, edit.after)
        ast.parse(texts[path], filename=edit.file)
    return texts


@contextmanager
def seeded(fault: Fault, root: Path) -> Iterator[None]:
    """The fault in a tree, for as long as the context is open."""
    texts = faulty(fault, root)
    sound = {path: path.read_bytes() for path in texts}
    try:
        for path, text in texts.items():
            path.write_text(text, "utf-8")
        yield
    finally:
        for path, content in sound.items():
            path.write_bytes(content)


def copy_of(checkout: Path, to: Path) -> Path:
    """A copy of what the tests of a checkout need: the package, the folders that it links to, the tests."""
    rooms = [link.name for link in (checkout / "src" / "agar").iterdir() if link.is_symlink()]
    for name in ("src", "tests", "benchmarks", *rooms):
        shutil.copytree(checkout / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(checkout / "pyproject.toml", to)
    return to


def pytest(root: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests of a tree on the tree's own package; the exit code and what was printed."""
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    # Restored files may have the size and second of the faulty ones, so nothing compiled may stay.
    env = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        answer = subprocess.run(
            command, cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TEST_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {TEST_TIMEOUT_S} s: {' '.join(tests)}"
    return answer.returncode, answer.stdout + answer.stderr


def killed(fault: Fault, root: Path) -> bool:
    """Whether the fault's test fails where the fault is."""
    with seeded(fault, root):
        code, said = pytest(root, [fault.test])
    return code == 1 and re.search(r"\b\d+ failed\b", said) is not None


def own_package(root: Path) -> bool:
    """Whether tests of a tree meet the tree's own package, not an installed one."""
    command = [sys.executable, "-P", "-c", "import agar; print(agar.__file__)"]
    env = {**os.environ, "PYTHONPATH": str(root / "src")}
    said = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    return Path(said.strip()).is_relative_to(root)


def page(faults: Sequence[Fault], verdicts: Mapping[str, bool]) -> str:
    """The text of `docs/mutations.md`."""
    lines = [
        "# Seeded faults",
        "",
        "Made by `tests/mutations/run.py`; do not edit it. Each row is a fault that somebody could write into the",
        "record of tokens. It was put into a copy of the sources, and the test beside it was run there: it must fail.",
        "That is the evidence that the tests can. `make verify` does it again; every change checks that each fault can",
        "still be put in and that its test is there.",
        "",
        "| fault | in | noticed by | killed |",
        "|---|---|---|---|",
    ]
    for fault in faults:
        files = ", ".join(dict.fromkeys(f"`{edit.file.removeprefix('src/agar/')}`" for edit in fault.edits))
        file, _, test = fault.test.partition("::")
        verdict = {True: "yes", False: "**no**", None: "not run"}[verdicts.get(fault.name)]
        lines.append(f"| {fault.fault} | {files} | `{file.removeprefix('tests/')}`: {test} | {verdict} |")
    return "\n".join([*lines, "", "```bash", "python tests/mutations/run.py --write", "```", ""])


def main() -> int:
    """Run the list; 1 if a fault survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, help="folder for result.json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="faults whose name begins so")
    parser.add_argument("--write", action="store_true", help="write docs/mutations.md")
    options = parser.parse_args()
    faults = [each for each in read_faults() if not options.only or each.name.startswith(tuple(options.only))]
    verdicts: dict[str, bool] = {}
    with tempfile.TemporaryDirectory(prefix="agar-mutations-") as folder:
        root = copy_of(CHECKOUT, Path(folder).resolve())
        assert own_package(root), "the tests would meet an installed agar, not the copy"
        code, said = pytest(root, list(dict.fromkeys(each.test for each in faults)))
        if code:
            print(said)
            print("a test that is to notice faults fails, or is missing, without any: mend that first")
            return 1
        for number, fault in enumerate(faults, 1):
            verdicts[fault.name] = killed(fault, root)
            verdict = "killed" if verdicts[fault.name] else "SURVIVED"
            print(f"[{number}/{len(faults)}] {fault.name}: {verdict}", flush=True)
    survived = sorted(name for name, dead in verdicts.items() if not dead)
    print(f"{len(verdicts) - len(survived)} of {len(verdicts)} killed")
    if options.out is not None:
        result = {"killed": len(verdicts) - len(survived), "survived": len(survived)}
        (options.out / "result.json").write_text(json.dumps(result))
    if options.write:
        PAGE.write_text(page(read_faults(), verdicts), "utf-8")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
