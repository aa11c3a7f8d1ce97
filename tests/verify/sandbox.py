"""Measures the sandboxes, beside Docker and SWE-ReX where they can be had; writes `result.json`.

Usage: python tests/verify/sandbox.py OUT
"""

import argparse
import contextlib
import importlib
import json
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DOCKERD = CHECKOUT / "tests" / "sandbox"


def main() -> int:
    """Start a Docker engine, build SWE-ReX's environment, measure; what cannot be had is named with the reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    sys.path.insert(0, str(DOCKERD))
    dockerd = importlib.import_module("dockerd")
    words, missing = [], {}
    with contextlib.ExitStack() as stack:
        try:
            words += ["--engine", str(stack.enter_context(dockerd.engine_of_our_own()))]
        except dockerd.NoEngineError as error:
            missing["docker"] = str(error)
        build = [sys.executable, str(CHECKOUT / "requirements" / "build.py"), "--only", "swe-rex"]
        built = subprocess.run(build, capture_output=True, text=True, timeout=900)
        if built.returncode:
            missing["swe_rex"] = f"not installed: {built.stderr.strip()[-300:]}"
        else:
            words += ["--swe-rex", f"{built.stdout.splitlines()[-1]}/bin/python"]
        bench = [sys.executable, "-P", "benchmarks/sandbox.py", "--out", str(out / "result.json"), *words]
        subprocess.run(bench, cwd=CHECKOUT, timeout=900, check=True)
    result = json.loads((out / "result.json").read_text())
    (out / "result.json").write_text(json.dumps(result | missing, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
