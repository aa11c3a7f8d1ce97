"""The judge: right results are right, everything else is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agar.examples.coding_agent import verify

CASES = [
    {"call": "m:double", "args": [2], "returns": 4},
    {"call": "m:items", "args": [], "returns": [1, {"a": [True, None]}, 0.5, "x"]},
    {"call": "m:fail", "args": [], "raises": "KeyError"},
]
RIGHT = [{"returns": 4}, {"returns": [1, {"a": [True, None]}, 0.5, "x"]}, {"raises": "KeyError"}]


def said(*answers: object) -> str:
    return json.dumps(list(answers))


def test_right_answers_are_counted() -> None:
    assert verify.judge(CASES, f"chatter\n\n{said(*RIGHT)}\n") == 3
    assert verify.judge(CASES, said(RIGHT[0], RIGHT[1], {"raises": "ValueError"})) == 2


@pytest.mark.parametrize(
    ("want", "got", "same"),
    [
        (4, 4.0, True),
        (0.1, 0.1 + 1e-16, True),
        (0.1, 0.1001, False),
        (1, True, False),
        (True, 1, False),
        (None, None, True),
        (None, False, False),
        ("4", 4, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"a": 2}, False),
        (1.5, 10**400, False),
        (float("inf"), float("nan"), False),
    ],
)
def test_results_are_compared_by_what_they_are(want: object, got: object, same: bool) -> None:
    assert verify.judge([{"call": "m:f", "args": [], "returns": want}], said({"returns": got})) == int(same)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        said(*RIGHT[:2]),
        said(*RIGHT, RIGHT[0]),
        "[" * 100_000,
        '{"returns": 4}',
        said(4, [1], "KeyError"),
        said({"returns": 4, "raises": "KeyError"}, {}, {}),
        said({"raises": "KeyError"}, {"raises": "KeyError"}, {"returns": "KeyError"}),
        f"{said(*RIGHT)}\nthe last line counts",
    ],
)
def test_everything_else_counts_for_nothing(text: str) -> None:
    assert verify.judge(CASES, text) == 0


@pytest.mark.parametrize(
    ("body", "reward"), [("return 2 * n", "1\n"), ("return n + 3", "0\n"), ("while True: pass", "0\n")]
)
def test_it_runs_by_itself_as_a_task_folder_holds_it(tmp_path: Path, body: str, reward: str) -> None:
    (tmp_path / "tests").mkdir()
    source = Path(verify.__file__).read_text().replace('"/logs/', f'"{tmp_path}/logs/').replace("= 10.0", "= 1.0")
    (tmp_path / "tests" / "verify.py").write_text(source)
    (tmp_path / "tests" / verify.CASES).write_text(json.dumps([{"call": "m:double", "args": [2], "returns": 4}]))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "m.py").write_text(f"def double(n):\n    {body}\n")
    command = [sys.executable, "-I", "-S", tmp_path / "tests" / "verify.py"]
    subprocess.run(command, cwd=tmp_path / "work", check=True, timeout=30)
    assert (tmp_path / "logs" / "verifier" / "reward.txt").read_text() == reward
