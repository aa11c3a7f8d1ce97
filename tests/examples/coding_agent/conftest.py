"""Repairs that are played by hand."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agar.envs.runner import AsyncRunner, as_async
from agar.envs.tasks.harbor import HarborTask
from agar.examples.coding_agent import generate, verify
from agar.examples.coding_agent.env import Repair
from agar.types import TaskRow, Turn

SCRIPT = b"""
export PYTHONPATH=/work
python3 -m unittest discover -s tests -t . && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
"""
"""Tests as they mostly are: they run in the repository, import the code under test, and write the reward themselves."""


class Repairs:
    """One environment, and the rows of two kinds of tasks."""

    def __init__(self, runner: AsyncRunner, folder: Path) -> None:
        self.runner = runner
        self.env: Repair = runner.env.unwrapped  # type: ignore[assignment]
        self.folder = folder

    async def start(self, kind: str) -> HarborTask:
        """Begin a task whose tests are `calls` compared outside, or a `script` that imports the code.

        Or a script that makes the calls in a `subprocess`, as one should.
        """
        task = generate.task("full", "heldout", 3)
        if kind != "calls":
            task = scripted(task) if kind == "script" else in_a_subprocess(task)
        folder = self.folder / kind
        if not folder.is_dir():
            folder = task.write(folder.parent / f"of-{kind}").rename(folder)
        await self.runner.areset(options={"task": TaskRow(key=kind, payload={"folder": str(folder)})})
        return self.env.task

    async def mend(self) -> None:
        """Do what is right."""
        known = self.env.task.metadata
        text = (await self.env.sb.read(known["path"])).decode()
        await self.env.sb.write(known["path"], text.replace(known["wrong"], known["right"]))

    async def reward(self, text: str = "done") -> float:
        """End the episode."""
        _, reward, terminated, _, info = await self.runner.astep(Turn(text=text))
        assert terminated, info
        return reward


def scripted(task: HarborTask) -> HarborTask:
    """The same task with tests that run inside."""
    return replace(task, tests={"test.sh": SCRIPT})


def in_a_subprocess(task: HarborTask) -> HarborTask:
    """The same task with a script that calls the code in a process of its own, and compares in another one."""
    judge = task.tests["verify.py"].replace(verify.CASES.encode(), b"calls.json")
    tests = {"verify.py": judge, "calls.json": task.tests[verify.CASES], "test.sh": task.tests["test.sh"]}
    return replace(task, tests=tests)


@pytest.fixture
async def repairs(tmp_path: Path) -> AsyncIterator[Repairs]:
    async with as_async(Repair(scripts=True)) as runner:
        yield Repairs(runner, tmp_path)
