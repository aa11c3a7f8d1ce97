"""L1: the same task and the same turns give the same observations and rewards."""

import asyncio
from typing import cast

from agar.envs.checks.subject import Fault, NextTurn, NotApplicable, Played, Subject, gold, play, replay, sampled
from agar.envs.isolation.env import ProcessEnv
from agar.envs.registry import make, spec
from agar.envs.runner import as_async
from agar.errors import ConfigError, EnvError


async def fresh_environments(subject: Subject) -> str:
    """Two environments agree about the same episode."""
    for number, task in enumerate(subject.some(3)):
        for first_turn in _players(number):
            async with subject.new() as one, subject.new() as two:
                try:
                    first = await play(one, task, first_turn)
                except NotApplicable:
                    continue
                _agree(first, await play(two, task, replay(first.turns)), f"task {task.key!r} in two environments")
    return "two environments agree"


async def used_environment(subject: Subject) -> str:
    """An environment carries nothing from one episode into the next."""
    tasks = subject.some(2)
    async with subject.new() as runner:
        first = await play(runner, tasks[0], sampled(7))
        await play(runner, tasks[-1], sampled(8))
        again = await play(runner, tasks[0], replay(first.turns))
        _agree(first, again, f"task {tasks[0].key!r} before and after another episode")
    return "an episode leaves nothing behind"


async def another_process(subject: Subject) -> str:
    """The same episode is the same in another process, whose sets are in another order."""
    if getattr(spec(subject.id).entry_point, "__module__", None) == "__main__":
        raise NotApplicable("it is defined in the script that runs: put it into a module to have this checked")
    env = make(subject.id, **{**subject.kwargs, "isolation": "process"})
    async with as_async(env, step_timeout_s=60.0) as there, subject.new() as here:
        try:
            await asyncio.to_thread(cast(ProcessEnv, env.unwrapped).start)
        except (ConfigError, EnvError) as error:
            raise NotApplicable(f"it cannot be made in another process: {error}") from error
        for number, task in enumerate(subject.some(2)):
            first = await play(here, task, sampled(number))
            _agree(first, await play(there, task, replay(first.turns)), f"task {task.key!r} in another process")
    return "another process agrees"


def _players(seed: int) -> tuple[NextTurn, ...]:
    return (sampled(seed), gold)


def _agree(one: Played, two: Played, what: str) -> None:
    for name in ("observations", "rewards", "ends"):
        for turn, (left, right) in enumerate(zip(getattr(one, name), getattr(two, name), strict=False)):
            if left != right:
                raise Fault(
                    f"{what}: {name} differ at step {turn}: {left!r} and {right!r}; "
                    "draw all chance from self.np_random or the task, never from the order of a set, and reset all "
                    "state in reset()"
                )
    if len(one.rewards) != len(two.rewards):
        raise Fault(f"{what}: one episode has {len(one.rewards)} steps, the other {len(two.rewards)}")
