"""L0: the interface. Gymnasium's own check, spaces, task sets, the end of episodes."""

import itertools
import json
import re
import warnings

import gymnasium
from gymnasium.utils.env_checker import check_env as gymnasium_check

from agar.envs.checks.subject import Fault, Subject, play, sampled
from agar.envs.registry import make
from agar.envs.tasks import SPLITS, rows

_ROWS = 256
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


async def gymnasium_interface(subject: Subject) -> str:
    """Gymnasium's environment checker finds nothing."""
    env = make(subject.id, **subject.kwargs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gymnasium_check(env.unwrapped)
        except Exception as error:  # whatever the environment raises is the finding
            raise Fault(f"gymnasium's check_env: {type(error).__name__}: {error}") from error
        finally:
            env.close()
    findings = [str(item.message) for item in caught if "WARN: " in str(item.message)]  # how Gymnasium marks its own
    if findings:
        raise Fault(f"gymnasium's check_env warns: {_COLOUR.sub('', findings[0])}")
    return "gymnasium.utils.env_checker.check_env passes"


async def gymnasium_make(subject: Subject) -> str:
    """`gymnasium.make` makes it too, with its wrappers."""
    env = gymnasium.make(subject.id.rpartition(":")[2], **subject.kwargs)
    try:
        env.reset(seed=1)
        env.step(env.action_space.sample())
    finally:
        env.close()
    return "gymnasium.make makes and plays it"


async def spaces(subject: Subject) -> str:
    """Spaces contain what they sample, and it survives JSON."""
    env = make(subject.id, **subject.kwargs)
    try:
        for name, space in (("observation_space", env.observation_space), ("action_space", env.action_space)):
            members = [space.sample() for _ in range(20)]
            for member in members:
                if member not in space:
                    raise Fault(f"{name}.sample() gave {member!r}, which {name} does not contain: mend contains()")
            back = space.from_jsonable(json.loads(json.dumps(space.to_jsonable(members))))
            if list(back) != members:
                raise Fault(f"{name} does not get its members back from JSON: mend to_jsonable() and from_jsonable()")
    finally:
        env.close()
    return "samples are members and survive JSON"


async def task_sets(subject: Subject) -> str:
    """Both splits hold tasks with unique keys, JSON-able payloads, and nothing in common."""
    seen: dict[str, str] = {}
    payloads: dict[str, str] = {}
    for split in SPLITS:
        tasks = subject.tasks(split)
        if len(tasks) == 0:
            raise Fault(f"the {split} split is empty: give it tasks")
        for task in rows(tasks, limit=_ROWS):
            if task.key in seen:
                raise Fault(f"the key {task.key!r} occurs twice: make keys unique over all splits")
            if task.split != split:
                raise Fault(f"{task.key!r} of the {split} split says split={task.split!r}: set it to {split!r}")
            try:
                payload = json.dumps(
                    {"prompt": task.prompt, "payload": dict(task.payload)}, sort_keys=True, allow_nan=False
                )
            except (TypeError, ValueError) as error:
                raise Fault(f"the payload of {task.key!r} is not JSON-able ({error}): use plain values") from error
            if payloads.setdefault(payload, split) != split:
                raise Fault(f"the task {task.key!r} is in both splits: make them disjoint")
            seen[task.key] = split
    return f"{len(seen)} tasks looked at in {', '.join(SPLITS)}; keys unique, splits disjoint"


async def episodes_end(subject: Subject) -> str:
    """Every episode ends."""
    longest = 0
    async with subject.new() as runner:
        for seed, task in enumerate(itertools.islice(subject.some(4), 4)):
            longest = max(longest, len((await play(runner, task, sampled(seed))).turns))
    return f"episodes of random turns end (the longest after {longest})"
