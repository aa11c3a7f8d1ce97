"""Judges a repository by calls of its functions, whose right results it does not get to see.

The functions run in a process of their own, which is told what to call and says what came back. Nothing of what it says
is believed: it is compared here with what should have come. So whatever the repository's code does to its process, to
the test framework, to files or to the exit code, only right results are right.

This file is also written into every task's `tests/`, where it runs by itself, with no package but the standard library.
"""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CASES = "cases.json"
"""Beside this file: a list of `{"call": "module:function", "args": [...], "returns": value}`; or `"raises": name`."""
REWARD = Path("/logs/verifier/reward.txt")
"""Where Harbor looks for the reward."""
TIMEOUT_S = 10.0
"""How long all calls may take together."""
SUBJECT = """
import json, sys
said = []
calls = json.loads(sys.stdin.readline())
sys.path.insert(0, ".")
for call in calls:
    module, _, name = call["call"].partition(":")
    try:
        result = getattr(__import__(module, fromlist=["*"]), name)(*call["args"])
        said.append(json.loads(json.dumps({"returns": result})))
    except BaseException as error:
        said.append({"raises": type(error).__name__})
print()
print(json.dumps(said))
"""
"""The program that makes the calls, in the repository."""


def questions(cases: Sequence[dict[str, Any]]) -> str:
    """What `SUBJECT` reads: the calls without their results."""
    return json.dumps([{"call": case["call"], "args": case["args"]} for case in cases]) + "\n"


def judge(cases: Sequence[dict[str, Any]], said: str) -> int:
    """How many calls gave what they should.

    Args:
        cases: the calls with their results.
        said: what `SUBJECT` wrote, or whatever the repository's code wrote in its place.
    """
    lines = said.strip().splitlines()
    try:
        answers = json.loads(lines[-1]) if lines else []
    except (ValueError, RecursionError):
        return 0
    if not isinstance(answers, list) or len(answers) != len(cases):
        return 0
    return sum(_right(case, answer) for case, answer in zip(cases, answers, strict=True))


def _right(case: dict[str, Any], answer: Any) -> bool:
    key = "raises" if "raises" in case else "returns"
    return isinstance(answer, dict) and set(answer) == {key} and _same(case[key], answer[key])


def _same(want: Any, got: Any) -> bool:
    """Equal, but for the last digits of floats; True is not 1."""
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, int | float) and isinstance(got, int | float):
        return want == got or (abs(got) < sys.float_info.max and math.isclose(want, got, rel_tol=1e-9))
    if type(want) is not type(got):
        return False
    if isinstance(want, list):
        return len(want) == len(got) and all(map(_same, want, got))
    if isinstance(want, dict):
        return want.keys() == got.keys() and all(_same(value, got[key]) for key, value in want.items())
    return bool(want == got)


def main() -> None:
    """Judge the repository in the working folder, and write the reward."""
    cases = json.loads((Path(__file__).parent / CASES).read_text())
    command = [sys.executable, "-I", "-S", "-c", SUBJECT]
    try:
        done = subprocess.run(
            command, input=questions(cases).encode(), capture_output=True, timeout=TIMEOUT_S, check=False
        )
        right = judge(cases, done.stdout.decode("utf-8", "replace"))
    except subprocess.TimeoutExpired:
        right = 0
    REWARD.parent.mkdir(parents=True, exist_ok=True)
    REWARD.write_text("1\n" if right == len(cases) else "0\n")
    print(f"{right} of {len(cases)} calls gave what they should")


if __name__ == "__main__":
    main()
