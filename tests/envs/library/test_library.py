"""What holds for every environment that comes with agar."""

import asyncio
import hashlib
import json
import subprocess
import sys

import pytest

from agar.envs.checker import check_env
from agar.envs.checks.subject import Subject, always, gold, play, replay, sampled
from agar.envs.registry import _BUILTIN
from agar.envs.spaces import MessageSpace, TurnSpace
from agar.types import Turn

KWARGS = {"Hunt-v0": {"sandbox": {"backend": "fake"}}}
NAMES = [entry.id for entry in _BUILTIN]
WORLDS = [name for name in NAMES if name not in ("Guess-v0", "Hunt-v0")]


def subject(name):
    return Subject(id=name, kwargs=KWARGS.get(name, {}))


@pytest.mark.parametrize("name", WORLDS)
def test_it_is_fit_to_train_in(name):
    report = check_env(name)
    assert report.ok, str(report)


@pytest.mark.parametrize("name", NAMES)
async def test_gold_earns_one_and_doing_nothing_nothing(name):
    world = subject(name)
    async with world.new() as runner:
        for split in ("train", "heldout"):
            for task in (world.tasks(split)[index] for index in range(5)):
                played = await play(runner, task, gold)
                assert (played.total, played.ends[-1]) == (1.0, (True, False)), task
                assert (await play(runner, task, always(Turn()))).total == 0.0


async def fingerprint(name):
    """A hash of what some episodes of gold and of random turns gave."""
    world = subject(name)
    seen = []
    async with world.new() as runner:
        for index in range(2):
            task = world.tasks("train")[index]
            first = await play(runner, task, sampled(index))
            for player in (gold, replay(first.turns)):
                played = await play(runner, task, player)
                heard = [MessageSpace().to_jsonable([list(o)])[0] for o in played.observations]
                said = TurnSpace().to_jsonable(played.turns)
                seen.append([task.key, task.prompt, heard, said, played.rewards, played.ends])
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


async def fingerprints():
    return {name: await fingerprint(name) for name in NAMES}


def test_the_same_turns_give_the_same_in_another_process():
    code = (
        "import asyncio, importlib.util, json, sys\n"
        f"spec = importlib.util.spec_from_file_location('library_tests', {__file__!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "print(json.dumps(asyncio.run(module.fingerprints())))\n"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=55)
    assert json.loads(other.stdout or "{}") == asyncio.run(fingerprints()), other.stderr
