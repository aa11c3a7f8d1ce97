"""Plays unruly clients against the gateway for many steps; writes what came of it as `result.json`.

The machine lies beside the tests of the gateway, which play it for a tenth of the steps. Seeds count up from 1,000, so
no sequence is one of those that CI has played.

Usage: python tests/verify/state_machine.py OUT [--steps 20000]
"""

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from agar.ledger.families import family_for
from agar.ledger.toy import write_toy_model

MACHINE = Path(__file__).resolve().parent.parent / "rollout" / "gateway"
FIRST_SEED = 1_000
EXAMPLES = 25


def main() -> int:
    """Play until there are enough steps; a broken invariant ends it with the steps that lead to it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    sys.path.insert(0, str(MACHINE))
    machine = importlib.import_module("unruly.machine")
    family = family_for(write_toy_model(tempfile.mkdtemp(dir=options.out)))
    rules: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    seed, began = FIRST_SEED, time.monotonic()
    while rules.total() < options.steps:
        score = machine.play(family, examples=EXAMPLES, seed=seed)
        rules.update(score.rules)
        seen.update(score.seen)
        print(f"seed {seed}: {rules.total()} steps, {time.monotonic() - began:.0f} s", flush=True)
        seed += 1
    result = {"steps": rules.total(), "violations": 0, "rules": len(rules), "rarest_rule": min(rules.values())}
    result |= {name.replace(" ", "_").replace(":", ""): count for name, count in sorted(seen.items())}
    (options.out / "result.json").write_text(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
