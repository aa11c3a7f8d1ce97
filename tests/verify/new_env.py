"""Follows the tutorial to its end, in an empty folder; writes the held-out rewards as `result.json`.

Usage: python tests/verify/new_env.py OUT [--seed 1]
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "new_env"
KEY = "eval/sort:Sort-v0/reward_mean"


def main() -> int:
    """Run the two commands, and write what was learnt."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in ("sort.py", "train.toml"):
        shutil.copy(EXAMPLE / name, options.out)
    agar = [sys.executable, "-P", "-m", "agar.cli.main"]
    for words in (["policy", "sort:Sort-v0", "runs", "--seed"], ["train", "train.toml", "--run.seed"]):
        subprocess.run([*agar, *words, str(options.seed)], cwd=options.out, check=True)
    [folder] = (options.out / "runs").glob("sort-*")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    before, after = (row[KEY] for row in rows if KEY in row)
    result = {"before": before, "after": after, "gain": after - before}
    (options.out / "result.json").write_text(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
