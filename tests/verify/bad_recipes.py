"""Gives `agar train` recipes that cannot work; writes how long the slowest refusal took as `result.json`.

Usage: python tests/verify/bad_recipes.py OUT
"""

import json
import subprocess
import sys
import time
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[2] / "examples" / "quickstart" / "train.toml"
REPEATS = 3


def wrong(model: Path) -> dict[str, tuple[list[str], str]]:
    """By name: the settings that make the recipe wrong, and words that the refusal must hold."""
    good = f"policies.main.model={model}"
    return {
        "unknown key": ([good, "rollout.group_siz=4"], "group_size"),
        "wrong type": ([good, "run.steps=many"], "run.steps"),
        "missing model": (["policies.main.model=/nowhere"], "there is no such folder"),
        "no group": ([good, "rollout.group_size=1"], "at least 2"),
    }


def main(out: Path) -> int:
    """Run each a few times; the best time counts, since the machine has other things to do as well."""
    model = out / "model"
    subprocess.run([sys.executable, "-P", "-m", "agar.examples.quickstart.policy", str(model)], check=True)
    slowest = 0.0
    for name, (settings, words) in wrong(model).items():
        times = []
        for _ in range(REPEATS):
            began = time.monotonic()
            command = [sys.executable, "-P", "-m", "agar.cli.main", "train", str(RECIPE), *settings]
            done = subprocess.run(command, cwd=out, capture_output=True, text=True, timeout=60, check=False)
            times.append(time.monotonic() - began)
            if done.returncode != 2 or words not in done.stderr or (out / "runs").exists():
                sys.exit(f"{name}: expected exit code 2 and {words!r}, got {done.returncode}: {done.stderr}")
        print(f"{name}: {min(times):.2f} s: {done.stderr.strip()}")
        slowest = max(slowest, min(times))
    (out / "result.json").write_text(json.dumps({"slowest_s": slowest}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
