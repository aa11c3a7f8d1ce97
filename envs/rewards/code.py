"""Programs: what a reply's code does when it is run in a sandbox."""

import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agar.envs.rewards.extract import Extract
from agar.envs.rubric import Conversation
from agar.errors import EnvError, ToolError

if TYPE_CHECKING:
    from agar.sandbox.base import Sandbox
    from agar.sandbox.config import SandboxSpec

_HARNESS = """
import json, sys, types
given = json.loads(sys.stdin.readline())
program = sys.modules["program"] = types.ModuleType("program")
with open("program.py", encoding="utf-8") as file:
    exec(compile(file.read(), "program.py", "exec"), program.__dict__)
exec(compile(given["test"], "test.py", "exec"), program.__dict__)
print()
print(given["end"])
"""
"""Runs a test behind the program; neither the test nor the mark of its end is in a file that the program could read."""

_COULD_NOT_RUN = (126, 127)
_BLOCK = re.compile(r"```[a-zA-Z0-9+#-]*[ \t]*\n(.*?)```", re.DOTALL)


def last_block(reply: str) -> str | None:
    """The code of the last fenced block; the whole reply where there is none."""
    found = _BLOCK.findall(reply)
    return (found[-1] if found else reply).strip() or None


def code_tests(
    tests: str = "tests",
    *,
    extract: Extract = last_block,
    sandbox: "SandboxSpec | None" = None,
    python: str = "python3",
    timeout_s: float = 10.0,
    partial: bool = False,
) -> Callable[[Conversation], Awaitable[float]]:
    """The tests that a Python program passes, each in a process of its own, in a fresh sandbox.

    A test is a table `{"stdin": …, "stdout": …}`, compared line by line without trailing white space, or code that runs
    behind the program and raises where it is wrong. A code test must come to its end: a program that ends the process
    before has failed. A program cannot reach the expected output of a test of the first kind; one of the second kind
    shares its process, so a program written to deceive it could.

    Args:
        tests: the entry of the task's payload that holds a test or a list of them.
        extract: finds the program in the reply.
        sandbox: what it runs in; the default spec if None.
        python: the interpreter inside.
        timeout_s: for one test.
        partial: True gives the share of tests that passed; False 1 for all of them, else 0.

    The criterion raises `EnvError` where the sandbox has no such interpreter: that is no program's failure.
    """

    async def score(told: Conversation) -> float:
        from agar.sandbox import SandboxSpec, create

        wanted = _tests(told, tests)
        program = extract(told.reply)
        if program is None:
            return 0.0
        spec = sandbox or SandboxSpec()
        passed, checked = 0, False
        async with create(spec) as box:
            for test in wanted:
                passes, code = await _passes(box, program, test, python, timeout_s)
                if code in _COULD_NOT_RUN and not checked:
                    async with create(spec) as fresh:  # in which no program has been
                        await _check_python(fresh, python, timeout_s)
                    checked = True
                if not passes and not partial:
                    return 0.0
                passed += passes
        return passed / len(wanted)

    return score


async def _check_python(fresh: "Sandbox", python: str, timeout_s: float) -> None:
    """Raise where it was not the program that ended as if there were no interpreter."""
    done = await fresh.exec([python, "-c", ""], timeout_s=timeout_s)
    if done.code in _COULD_NOT_RUN:
        raise EnvError(
            f"code_tests: the sandbox cannot run {python!r} ({done.stderr.strip()[-200:]}): install it below /usr, "
            "bring it in by the spec's `mounts`, or name another with `python`"
        )


def _tests(told: Conversation, name: str) -> Sequence[str | Mapping[str, Any]]:
    found = told.task.payload.get(name)
    given = list(found) if isinstance(found, (list, tuple)) else [found]
    every = [test for test in given if isinstance(test, (str, Mapping))]
    if not every or len(every) != len(given):
        raise EnvError(
            f"task {told.task.key!r} has no tests in {name!r}: expected code, or stdin and stdout, or a list"
        )
    return every


async def _passes(
    box: "Sandbox", program: str, test: str | Mapping[str, Any], python: str, timeout_s: float
) -> tuple[bool, int]:
    """Whether it passes, and the exit code."""
    try:
        await box.write("program.py", program)
    except ToolError:  # the program has filled the disk, or left a folder in its place
        return False, 1
    if isinstance(test, Mapping):
        done = await box.exec([python, "program.py"], stdin=str(test.get("stdin", "")), timeout_s=timeout_s)
        same = not done.truncated and _lines(done.stdout) == _lines(str(test["stdout"]))
        return done.code == 0 and same, done.code
    given = {"test": test, "end": secrets.token_hex(16)}
    done = await box.exec([python, "-c", _HARNESS], stdin=json.dumps(given) + "\n", timeout_s=timeout_s)
    return done.code == 0 and done.stdout.rstrip().endswith(given["end"]), done.code


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
