"""The process behind `agar.envs.rewards.maths.Verifier`: a pair of expressions a line in, 1, 0 or error out."""

import json
import sys


def main() -> None:
    """Compare until the owner is gone."""
    try:
        from math_verify import parse, verify
    except ImportError:
        sys.stdout.write("missing\n")
        return
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        said, right = json.loads(line)
        try:
            # The owner keeps the time: no alarm signals in here.
            expressions = [parse(_as_maths(text), parsing_timeout=None) for text in (right, said)]
            answer = str(int(all(expressions) and verify(*expressions, timeout_seconds=None)))
        except Exception:  # the owner counts it: whatever sympy made of it, it was not shown to be equal
            answer = "error"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def _as_maths(text: str) -> str:
    return text if "$" in text or r"\(" in text else f"${text}$"


if __name__ == "__main__":
    main()
