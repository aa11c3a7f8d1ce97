"""Runs an example at the size of two cores to its end; writes the held-out rewards as `result.json`.

Usage: python tests/verify/example.py OUT NAME [--seed 1] [--dotted.key VALUE ...]
"""

import argparse
import importlib
import json
import math
import shutil
import sys
import time
from pathlib import Path

from agar.examples.stages import Example


def main() -> int:
    """Warm up, reinforce, and write what was learnt; `sigmas` counts standard errors of the gain."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("name", help="a folder of examples/ whose run.py has an EXAMPLE")
    parser.add_argument("--seed", type=int, default=1)
    options, overrides = parser.parse_known_args()
    example: Example = importlib.import_module(f"agar.examples.{options.name}.run").EXAMPLE
    runs, began = options.out / "runs", time.monotonic()
    warm = example.warm_up(runs, seed=options.seed)
    warmed = time.monotonic()
    learnt = None if warm is None else example.reinforce(runs, warm, seed=options.seed, overrides=overrides)
    if learnt is None:
        sys.exit("stopped before the end")
    shutil.copy(learnt.folder / "reward.png", options.out / "reward.png")
    gain = learnt.after - learnt.before
    result = {
        "before": learnt.before,
        "after": learnt.after,
        "gain": gain,
        "sigmas": gain / max(math.hypot(learnt.before_error, learnt.after_error), 1e-9),
        "warm_up_minutes": (warmed - began) / 60,
        "minutes": (time.monotonic() - began) / 60,
    }
    (options.out / "result.json").write_text(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
