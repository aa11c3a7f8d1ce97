"""Measures the sandboxes, and beside them Docker and SWE-ReX where they can be had; writes `result.json`.

Usage: python tests/verify/sandbox.py OUT
"""

import argparse
import contextlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DOCKERD = CHECKOUT / "tests" / "sandbox"


def main() -> int:
    """Measure ours, then each of the others; one that cannot be had is named with the reason, and fails nothing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    result = measured(out)
    for name, words in (("docker", with_docker), ("swe_rex", with_swe_rex)):
        try:
            with words() as more:
                theirs = measured(out, *more)
        except (NotHadError, subprocess.SubprocessError) as error:
            result[name] = f"not measured: {error}"
        else:  # beside figures of ours from the same run
            result |= {key: value for key, value in theirs.items() if key.startswith(name)}
            result |= {
                f"{name}_beside_bare_ms": theirs["bare_ms"],
                f"{name}_beside_bubblewrap_ms": theirs["bubblewrap_ms"],
            }
    (out / "result.json").write_text(json.dumps(result, indent=2))
    return 0


class NotHadError(Exception):
    """Something to compare with cannot be had here; the message says why."""


def measured(out: Path, *words: str) -> dict[str, Any]:
    """The figures of one run of the benchmark."""
    path = out / "figures.json"
    bench = [sys.executable, "-P", "benchmarks/sandbox.py", "--out", str(path), *words]
    subprocess.run(bench, cwd=CHECKOUT, timeout=500, check=True)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@contextlib.contextmanager
def with_docker() -> Iterator[list[str]]:
    """What adds Docker's figures."""
    sys.path.insert(0, str(DOCKERD))
    dockerd = importlib.import_module("dockerd")
    try:
        with dockerd.engine_of_our_own() as engine:
            yield ["--engine", str(engine)]
    except dockerd.NoEngineError as error:
        raise NotHadError(str(error)) from error


@contextlib.contextmanager
def with_swe_rex() -> Iterator[list[str]]:
    """What adds SWE-ReX's figures."""
    build = [sys.executable, str(CHECKOUT / "requirements" / "build.py"), "--only", "swe-rex"]
    built = subprocess.run(build, capture_output=True, text=True, timeout=600)
    if built.returncode:
        raise NotHadError(f"its environment cannot be built: {built.stderr.strip()[-300:]}")
    yield ["--swe-rex", f"{built.stdout.splitlines()[-1]}/bin/python"]


if __name__ == "__main__":
    sys.exit(main())
