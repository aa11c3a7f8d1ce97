"""What an environment costs beside its own work: make, reset and step, in milliseconds.

    python benchmarks/env_step.py [--episodes 2000] [--out FILE]

Every episode is one reset and one step of an environment that does nothing. The rows differ in who drives it.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import gymnasium

import agar
from agar.envs.base import StepResult
from agar.envs.runner import as_async
from agar.envs.spaces import Observation

STEPS = 1
_IN_A_THREAD = "Env in a thread by as_async"
_IN_A_PROCESS = "Env in a process of its own by as_async"


class Nothing(agar.Env):
    """Answers "ok"."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        return "go", {}

    def step(self, action: agar.Turn) -> StepResult:
        return "ok", 0.0, False, False, {}


class NothingAsync(agar.AsyncEnv):
    """Answers "ok", asynchronously."""

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        await super().areset(seed=seed, options=options)
        return "go", {}

    async def astep(self, action: agar.Turn) -> StepResult:
        return "ok", 0.0, False, False, {}


def timed(work: Callable[[], object], episodes: int) -> float:
    """The median time of an episode, in ms."""
    times = []
    for _ in range(episodes):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def driven(env: gymnasium.Env[Any, Any], seed: int | None, episodes: int, turn: agar.Turn | None = None) -> float:
    """Gymnasium's own interface."""
    said = turn or TURN

    def episode() -> None:
        env.reset(seed=seed)
        for _ in range(STEPS):
            env.step(said)

    return timed(episode, episodes)


async def awaited(env: gymnasium.Env[Any, Any], seed: int | None, episodes: int) -> float:
    """As the rollout drives it."""
    runner = as_async(env)
    times = []
    for _ in range(episodes):
        started = time.perf_counter()
        await runner.areset(seed=seed)
        for _ in range(STEPS):
            await runner.astep(TURN)
        times.append(time.perf_counter() - started)
    await runner.aclose()
    return statistics.median(times) * 1e3


TURN = agar.Turn(text="hello")


def run(work: Coroutine[Any, Any, float]) -> float:
    return asyncio.run(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    episodes = options.episodes
    agar.register("Nothing-v0", Nothing, max_turns=100)
    agar.register("NothingAsync-v0", NothingAsync, max_turns=100)
    rows = {
        "agar.make": timed(lambda: agar.make("Nothing-v0"), episodes),
        "gymnasium.make": timed(lambda: gymnasium.make("Nothing-v0"), episodes),
        "Env, reset and step": driven(agar.make("Nothing-v0"), None, episodes),
        "Env, seeded reset and step": driven(agar.make("Nothing-v0"), 1, episodes),
        "Env through gymnasium.make, reset and step": driven(gymnasium.make("Nothing-v0"), None, episodes),
        "AsyncEnv awaited by as_async": run(awaited(agar.make("NothingAsync-v0"), None, episodes)),
        "Guess-v0, seeded reset and a guess": driven(agar.make("Guess-v0"), 1, episodes, agar.Turn(text="5")),
        _IN_A_THREAD: run(awaited(agar.make("Nothing-v0"), None, episodes)),
    }
    env = agar.make("NothingAsync-v0")
    rows["AsyncEnv driven by reset and step"] = driven(env, None, episodes)
    env.close()
    slowest = max(rows.values())  # a process of its own is what an author asks for, not a cost of every environment
    isolated = agar.make("Nothing-v0", isolation="process")
    rows[_IN_A_PROCESS] = run(awaited(isolated, None, min(episodes, 500)))
    width = max(map(len, rows))
    for name, ms in rows.items():
        print(f"{name:<{width}}  {ms:8.4f} ms")
    print(json.dumps({name: round(ms, 6) for name, ms in rows.items()}))
    if options.out is not None:
        found = {"slowest_ms": slowest, "in_a_thread_ms": rows[_IN_A_THREAD], "in_a_process_ms": rows[_IN_A_PROCESS]}
        options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
