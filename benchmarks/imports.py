"""What imports cost, each in fresh processes, the cheapest of several: `agar`, `agar.envs`, gymnasium.

    python benchmarks/imports.py [--repeats 7] [--out FILE]

`agar.envs` gives its names on first use, so what is timed is the use of the ones that a small environment needs. It is
processor time, which a busy machine changes little; on an idle one the clock shows much the same.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

STATEMENTS = {
    "agar_s": "import agar",
    "gymnasium_s": "import gymnasium",
    "envs_s": "from agar.envs import Env, make, register",
}


def fastest(statement: str, repeats: int) -> float:
    """Seconds of processor time, the interpreter's own start left out."""
    code = f"import time; began = time.process_time(); {statement}; print(time.process_time() - began)"
    command = [sys.executable, "-P", "-c", code]
    return min(
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(repeats)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = {name: fastest(statement, options.repeats) for name, statement in STATEMENTS.items()}
    result["envs_beyond_gymnasium_s"] = result["envs_s"] - result["gymnasium_s"]
    print(json.dumps(result, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
