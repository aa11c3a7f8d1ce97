"""Runs the quick start, or its two controls, from one warmed-up policy; writes what came of it as `result.json`.

The controls play many more held-out episodes, because what they claim is that a difference is small. They are a job of
their own, because only the quick start's minutes count: the machine may do other things beside the controls.

Usage: python tests/verify/quickstart.py OUT [--seed 1] [--controls] [--dotted.key VALUE ...]
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from agar.examples.quickstart.run import reinforce, warm_up
from agar.examples.stages import Learnt

PRECISE = ["--evaluate.0.tasks=1024"]
WITHOUT_LEARNING = [*PRECISE, "--policies.main.optimizer.lr=0"]
SHUFFLED = [*PRECISE, "--run.shuffle_rewards=true"]


def finished(learnt: Learnt | None) -> Learnt:
    """The result, or an end where there is none."""
    if learnt is None:
        sys.exit("stopped before the end")
    return learnt


def main() -> int:
    """Run them, and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--controls", action="store_true")
    options, overrides = parser.parse_known_args()
    runs, began = options.out / "runs", time.monotonic()
    warm = warm_up(runs, seed=options.seed)
    if warm is None:
        sys.exit("stopped before the end")
    result = {}
    if options.controls:

        def gain_of(changes: list[str]) -> float:
            control = finished(reinforce(runs, warm, seed=options.seed, overrides=[*overrides, *changes]))
            return control.after - control.before

        result = {
            "gain_without_learning": gain_of(WITHOUT_LEARNING),
            "gain_with_shuffled_rewards": gain_of(SHUFFLED),
        }
    else:
        learnt = finished(reinforce(runs, warm, seed=options.seed, overrides=overrides))
        minutes = (time.monotonic() - began) / 60
        shutil.copy(learnt.folder / "reward.png", options.out / "reward.png")
        gain = learnt.after - learnt.before
        result = {"before": learnt.before, "after": learnt.after, "gain": gain, "minutes": minutes}
        rows = map(json.loads, (learnt.folder / "metrics.jsonl").read_text().splitlines())
        steps = [row for row in rows if "trainer/loss" in row]
        result["steps"] = len(steps)
        result["first_step_engine_kl"] = steps[0]["trainer/engine_kl_mean"]
        result["largest_engine_gap"] = max(row["trainer/engine_gap_max"] for row in steps)
    (options.out / "result.json").write_text(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
