"""Plays reasoning-gym's own answers in every one of its data sets; writes the count as `result.json`, and
why the others fail as `reasons.json`.

Usage: python tests/verify/reasoning_gym.py OUT
"""

import asyncio
import json
import sys
from pathlib import Path

import agar.envs.adapters.reasoning_gym as adapter
from agar.envs.checks.subject import NotApplicable, Subject, gold, play

TASKS = 5
DEADLINE_S = 120.0


async def trouble(name: str) -> str | None:
    """Why a data set cannot be trained on, or None."""
    world = Subject(id=f"reasoning_gym/{name}-v0")
    try:
        async with asyncio.timeout(DEADLINE_S), world.new() as runner:
            for split in ("train", "heldout"):
                tasks = world.tasks(split)
                for index in range(TASKS):
                    earned = (await play(runner, tasks[index], gold)).total
                    if earned < 1.0:
                        return f"its own answer to {split} task {index} scores {earned:g}"
    except NotApplicable:
        return "it keeps no answer that could be tried"
    except Exception as error:  # whatever a data set raises is the finding
        return f"{type(error).__name__}: {error}"
    return None


async def main(out: Path) -> int:
    """Try them one after the other; `composite`, which only mixes others, counts as one that cannot be loaded."""
    reasons = {"composite": "it only mixes others, which it must be given"}
    for name in adapter.names():
        why = await trouble(name)
        print(f"{name}: {why or 'ok'}", flush=True)
        if why is not None:
            reasons[name] = why
    count = len(adapter.names()) + 1
    result = {"data_sets": count, "good": count - len(reasons), "share": 1 - len(reasons) / count}
    (out / "reasons.json").write_text(json.dumps(reasons, indent=2))
    (out / "result.json").write_text(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]).resolve())))
