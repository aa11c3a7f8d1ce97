"""Programs run in a real sandbox."""

import pytest

from agar.envs.rewards.code import code_tests, last_block
from agar.errors import EnvError
from agar.sandbox import SandboxSpec, available

GOOD = "Here:\n```python\ndef double(n):\n    return 2 * n\n```\nThat is it."
TYPED = """```python
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Number:  # caf\u00e9
    value: int

def double(n):
    return Number(2 * n).value
```"""
ECHO = "```python\nprint(int(input()) * 2)\n```"
UNIT = ["assert double(2) == 4", "assert double(0) == 0"]
INOUT = [{"stdin": "2\n", "stdout": "4"}, {"stdin": "5", "stdout": "10\n"}]

needs_sandbox = pytest.mark.skipif(bool(available(SandboxSpec())), reason="needs bubblewrap")


def test_the_last_block_is_the_program():
    assert last_block("```py\na\n```\n```\nb\n```") == "b"
    assert last_block("x = 1") == "x = 1"
    assert last_block("  ") is None


@pytest.mark.sandbox
@needs_sandbox
@pytest.mark.parametrize(
    ("reply", "tests", "partial", "score"),
    [
        (GOOD, UNIT, False, 1.0),
        (GOOD, UNIT[0], False, 1.0),
        (TYPED, UNIT, False, 1.0),
        (ECHO, INOUT, False, 1.0),
        (GOOD, [*UNIT, "assert double(3) == 7"], False, 0.0),
        (GOOD, [*UNIT, "assert double(3) == 7"], True, 2 / 3),
        ("```python\nprint(4)\n```", INOUT, True, 0.5),
        ("```python\ndef double(n:\n```", UNIT, False, 0.0),
        ("```python\nimport os\nos._exit(0)\n```", UNIT, False, 0.0),
        ("```python\nimport sys\nsys.exit(0)\n```", UNIT, True, 0.0),
        (
            "```python\nfor name in __import__('os').listdir('.'): print(open(name).read())\nexit()\n```",
            UNIT,
            True,
            0.0,
        ),
        ("```python\nimport atexit\natexit.register(print, 'x')\ndef double(n): return 2 * n\n```", UNIT, False, 0.0),
        (GOOD + "\n```python\ndef double(n): return 2 * n\nif __name__ == '__main__': input()\n```", UNIT, False, 1.0),
        ("", UNIT, False, 0.0),
        ("```python\nimport os\nos._exit(127)\n```", UNIT, True, 0.0),
        ("```python\nimport os\nos.chmod('/work', 0)\nos._exit(126)\n```", UNIT, True, 0.0),
        ("```python\nimport os\nos.remove('program.py')\nos.mkdir('program.py')\n```", UNIT, True, 0.0),
    ],
    ids=[
        "unit",
        "one",
        "dataclass",
        "in and out",
        "one fails",
        "a share",
        "half",
        "syntax",
        "_exit",
        "exit",
        "tells files",
        "speaks last",
        "main",
        "nothing",
        "as if there were no interpreter",
        "as if the interpreter could not run",
        "a folder in its own place",
    ],
)
async def test_what_passes(told, reply, tests, partial, score):
    assert await code_tests(partial=partial)(told(reply, tests=tests)) == pytest.approx(score)


@pytest.mark.sandbox
@needs_sandbox
async def test_a_program_that_hangs_has_failed(told):
    assert await code_tests(timeout_s=1.0)(told("```\nwhile True: pass\n```", tests=UNIT)) == 0.0


@pytest.mark.parametrize("tests", [UNIT, INOUT])
async def test_a_sandbox_without_the_interpreter_is_nobodys_zero(told, tests):
    with pytest.raises(EnvError, match="cannot run 'nope'"):
        await code_tests(python="nope", sandbox=SandboxSpec(backend="fake"))(told(GOOD, tests=tests))


@pytest.mark.parametrize("payload", [{}, {"tests": []}, {"tests": [3]}])
async def test_a_task_without_tests_is_the_environments_fault(told, payload):
    with pytest.raises(EnvError, match="no tests in 'tests'"):
        await code_tests()(told(GOOD, **payload))
