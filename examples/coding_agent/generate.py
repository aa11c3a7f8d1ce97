"""Makes tasks: small repositories in which one function has a mistake, each verified when it is made.

    python -m agar.examples.coding_agent.generate OUT_DIR --level full --count 64

A task is drawn from a seed, and drawn again until some of its hidden calls come out wrong before the mistake is mended,
all of them right after, and (at level `full`) one of the tests that the agent can run fails.
"""

import argparse
import functools
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

from agar.envs.tasks import GeneratedTasks, TaskSet, check_split
from agar.envs.tasks.harbor import HarborTask
from agar.errors import ConfigError
from agar.examples.coding_agent import verify
from agar.examples.coding_agent.library import MODULES, ONE_LINERS, Function
from agar.examples.coding_agent.mutate import Mutant, mutants, normal
from agar.types import TaskRow

Level = Literal["small", "full"]
"""`small`: two modules of two one-line functions, for a policy of half a million parameters; `full`: modules of several
functions of several lines, with tests."""
SIZES = {"train": 65_536, "heldout": 4_096}
"""Tasks in each split of a level."""

_HELDOUT_SHARE = 5  # one in this many mistakes belongs to the held-out split
_NAMES = ("cart", "bank", "shop", "farm", "mill", "dock", "park", "port")
_TEST_SH = b"#!/bin/sh\nexec python3 -I -S /tests/verify.py\n"
_SOLVE_SH = b'#!/bin/sh\ncp -R "$(dirname "$0")/mended/." .\n'
_README = "# {name}\n\nRun the tests with `python3 -m unittest`.\n"


def tasks(split: str, *, level: Level = "full", env: str = "Repair-v0") -> TaskSet:
    """The task set of a split; a mistake belongs to one split by its hash.

    Raises:
        ConfigError: the split is unknown.
    """
    check_split(split)

    def row(index: int) -> TaskRow:
        made = task(level, split, index)
        payload = {"level": level, "split": split, "index": index, "seed": index}
        return TaskRow(key=made.name, prompt=made.instruction, payload=payload, split=split, env=env)

    return GeneratedTasks(row, size=SIZES[split])


def small_tasks(split: str) -> TaskSet:
    """The small tasks of a split, for `RepairSmall-v0`.

    Raises:
        ConfigError: the split is unknown.
    """
    return tasks(split, level="small", env="RepairSmall-v0")


@functools.lru_cache(maxsize=4096)
def task(level: Level, split: str, index: int) -> HarborTask:
    """One task; the same one each time.

    Raises:
        ConfigError: there is no such level.
    """
    if level not in ("small", "full"):
        raise ConfigError(f"level must be small or full, got {level!r}")
    rng = Random(f"{level} {split} {index}")
    draw = _small if level == "small" else _full
    while True:
        made = draw(rng, f"{level}-{split}-{index}", split)
        if made is not None:
            return made


def split_of(function: str, mutant: Mutant) -> str:
    """The split to which a mistake belongs."""
    digest = hashlib.blake2s(f"{function} {mutant.wrong}".encode(), digest_size=4).digest()
    return "heldout" if int.from_bytes(digest) % _HELDOUT_SHARE == 0 else "train"


def _small(rng: Random, name: str, split: str) -> HarborTask | None:
    names = iter(f"n{digit}" for digit in rng.sample(range(10), 8))  # digits, which the small policy copies best
    chosen = [
        Function(name=one.name, source=one.source.format(a=next(names), b=next(names)), sample=one.sample)
        for one in rng.sample(ONE_LINERS, 4)
    ]
    first, second = rng.sample(_NAMES, 2)
    modules = {first: chosen[:2], second: chosen[2:]}
    return _task(rng, name, split, modules, instruction="{function} is wrong.", tested=False)


def _full(rng: Random, name: str, split: str) -> HarborTask | None:
    modules = {module: rng.sample(MODULES[module], rng.randint(2, 4)) for module in rng.sample(sorted(MODULES), 3)}
    instruction = (
        "The function `{function}` of this repository gives wrong results: one line of it is wrong. Find the line and "
        "mend it; leave everything else as it is. `python3 -m unittest` runs the tests. End with a message without "
        "tool calls when you are done."
    )
    return _task(rng, name, split, modules, instruction=instruction, tested=True)


def _task(
    rng: Random,
    name: str,
    split: str,
    modules: Mapping[str, Sequence[Function]],
    *,
    instruction: str,
    tested: bool,
) -> HarborTask | None:
    """A task over these modules; None where the draw is unfit."""
    module, function = rng.choice([(module, one) for module, content in modules.items() for one in content])
    source = normal(function.source)
    found = mutants(source)
    if not found or split_of(function.name, mutant := rng.choice(found)) != split:
        return None
    mended = {f"{path}.py": "\n\n".join(normal(one.source) for one in content) for path, content in modules.items()}
    path = f"{module}.py"
    before = {**mended, path: mended[path].replace(source, mutant.source)}
    cases = [
        case
        for home, content in modules.items()
        for one in content
        for case in _cases(mended, home, one, rng, count=16 if one is function else 4)
    ]
    wrong = len(cases) - _passed(before, cases)
    unique = sum(mutant.wrong in line for line in before[path].splitlines()) == 1  # so that an edit can name it
    if wrong < 3 or not unique:
        return None
    if tested:
        shown = {
            home: [call for one in content for call in _shown(mended, before, home, one, rng, wrong=one is function)]
            for home, content in modules.items()
        }
        if _passed(before, shown[module]) == len(shown[module]):
            return None
        extra = {f"tests/test_{home}.py": _test_file(home, content) for home, content in shown.items()}
        extra |= {"tests/__init__.py": "", "README.md": _README.format(name="-".join(modules))}
        mended, before = {**mended, **extra}, {**before, **extra}
    verifier = {
        verify.CASES: json.dumps(cases).encode(),
        "verify.py": Path(verify.__file__).read_bytes(),
        "test.sh": _TEST_SH,
    }
    return HarborTask(
        name=name,
        instruction=instruction.format(function=function.name),
        repository={where: text.encode() for where, text in before.items()},
        tests=verifier,
        solution={"solve.sh": _SOLVE_SH, f"mended/{path}": mended[path].encode()},
        verifier_timeout_s=20.0,
        metadata={"function": function.name, "path": path, "wrong": mutant.wrong, "right": mutant.right},
    )


def _cases(
    files: Mapping[str, str], module: str, function: Function, rng: Random, *, count: int
) -> list[dict[str, Any]]:
    drawn = [{"call": f"{module}:{function.name}", "args": function.sample(rng)} for _ in range(count)]
    return [{**case, **_called(files, case)} for case in drawn]


def _called(files: Mapping[str, str], case: Mapping[str, Any]) -> dict[str, Any]:
    """What a call comes to. The code is our own, and cannot hang: no mistake makes a loop of the library endless."""
    module, _, name = case["call"].partition(":")
    try:
        result = _loaded(files[f"{module}.py"])[name](*json.loads(json.dumps(case["args"])))
        return {"returns": json.loads(json.dumps(result))}
    except Exception as error:
        return {"raises": type(error).__name__}


@functools.lru_cache(maxsize=64)
def _loaded(source: str) -> dict[str, Any]:
    place: dict[str, Any] = {}
    exec(compile(source, "module.py", "exec"), place)
    return place


def _passed(files: Mapping[str, str], cases: Sequence[dict[str, Any]]) -> int:
    return verify.judge(cases, json.dumps([_called(files, case) for case in cases]))


def _shown(
    mended: Mapping[str, str], before: Mapping[str, str], module: str, one: Function, rng: Random, *, wrong: bool
) -> list[dict[str, Any]]:
    """Three calls for the tests that the agent sees; of the function that is wrong, ones that fail, if they can."""
    drawn = _cases(mended, module, one, rng, count=12 if wrong else 3)
    return sorted(drawn, key=lambda case: _passed(before, [case]))[:3]


def _test_file(module: str, cases: Sequence[dict[str, Any]]) -> str:
    lines = ["import unittest", "", f"import {module}", "", "", f"class Test{module.title()}(unittest.TestCase):"]
    by_name: dict[str, list[str]] = {}
    for case in cases:
        name = case["call"].partition(":")[2]
        call = f"{module}.{name}({', '.join(map(repr, case['args']))})"
        check = f"self.assertEqual({call}, {case['returns']!r})" if "returns" in case else ""
        check = check or f"self.assertRaises({case['raises']}, lambda: {call})"
        by_name.setdefault(name, []).append(f"        {check}")
    for name, checks in by_name.items():
        lines += [f"    def test_{name}(self):", *checks, ""]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Write task folders."""
    parser = argparse.ArgumentParser(description="Make repositories with a mistake in them, as task folders.")
    parser.add_argument("directory", type=Path, help="where the folders go")
    parser.add_argument("--level", choices=["small", "full"], default="full")
    parser.add_argument("--split", choices=list(SIZES), default="train")
    parser.add_argument("--count", type=int, default=64)
    options = parser.parse_args(words)
    for index in range(options.count):
        task(options.level, options.split, index).write(options.directory)
    print(f"{options.count} tasks in {options.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
