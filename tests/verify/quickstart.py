"""Runs the quick start and writes what it came to as `result.json`.

Usage: python tests/verify/quickstart.py OUT [--seed 1] [--dotted.key VALUE ...]
"""

import argparse
import json
import sys
from pathlib import Path

from agar.examples.quickstart.run import quickstart


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options, overrides = parser.parse_known_args()
    outcome = quickstart(options.out / "runs", seed=options.seed, overrides=overrides)
    if outcome is None:
        print("stopped before the end", file=sys.stderr)
        return 1
    result = {
        "before": outcome.before,
        "after": outcome.after,
        "gain": outcome.after - outcome.before,
        "minutes": sum(outcome.seconds.values()) / 60,
    }
    (options.out / "result.json").write_text(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
