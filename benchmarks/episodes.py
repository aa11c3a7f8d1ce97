"""A thousand asynchronous episodes at once, through the gateway, against the fake engine: time and memory.

    python benchmarks/episodes.py [--episodes 1000] [--turns 4] [--out FILE]

Everything is as in training but the engine, whose model is a hash and whose tokens cost nothing to wait for. Every
episode must end by the environment's word and every invariant of the ledger must hold.
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import agar
from agar.agents.chat import ChatAgent
from agar.envs.base import StepResult
from agar.envs.spaces import Observation
from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.families import family_for
from agar.ledger.toy import write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.episode import EpisodeRunner
from agar.rollout.gateway.server import Gateway
from agar.types import GroupId, Outcome, Sampling, TaskRow, Turn

WAIT_S = 0.05


class Waits(agar.AsyncEnv):
    """Waits a little in every step, as for a server, and ends after so many turns."""

    def __init__(self, turns: int, meanwhile: "Meanwhile") -> None:
        self.left, self.meanwhile = turns, meanwhile

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        await super().areset(seed=seed, options=options)
        return "Say something.", {}

    async def astep(self, action: Turn) -> StepResult:
        with self.meanwhile:
            await asyncio.sleep(WAIT_S)
        self.left -= 1
        return "Go on.", 0.0, self.left == 0, False, {}


class Meanwhile:
    """How many are inside at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1


async def play(episodes: int, turns: int) -> tuple[list[Trace], float, int]:
    """The traces, how long they took in seconds, and the most steps that waited at once."""
    meanwhile = Meanwhile()
    with tempfile.TemporaryDirectory() as folder:
        family = family_for(write_toy_model(Path(folder)))
        async with (
            FakeEngine(vocab_size=family.tokenizer.vocabulary_size, version=1) as engine,
            RouterClient(engine.url) as client,
            Gateway(engines={"main": client}, families={"main": family}) as gateway,
        ):
            runner = EpisodeRunner(
                gateway=gateway,
                agent=ChatAgent(transport="direct"),
                make_env=lambda name, kwargs: Waits(turns, meanwhile),
                config=RolloutConfig(),
            )

            async def one(index: int) -> Trace:
                task = TaskRow(key=str(index))
                attempt = Attempt(group=GroupId(task=task.key, ordinal=index), index=0, task=task, env="Waits-v0")
                return await runner.play(attempt, Sampling(max_tokens=8))

            began = time.perf_counter()
            traces = await asyncio.gather(*(one(index) for index in range(episodes)))
            return list(traces), time.perf_counter() - began, meanwhile.most


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    traces, seconds, most = asyncio.run(play(options.episodes, options.turns))
    report = audit(traces, [sample for trace in traces for sample in emit(trace)])
    report.raise_if_broken()
    result = {
        "episodes": len(traces),
        "completed": sum(trace.outcome is Outcome.COMPLETED for trace in traces),
        "most_steps_at_once": most,
        "seconds": round(seconds, 2),
        "turns_per_s": round(len(traces) * options.turns / seconds, 1),
        "sampled_tokens": report.sampled_tokens,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }
    print(json.dumps(result, indent=2))
    if options.out is not None:
        options.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
