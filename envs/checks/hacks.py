"""L3: ways of earning a reward without solving the task."""

import asyncio
import tempfile
import uuid
from pathlib import Path

from agar.envs.checks.subject import Fault, NotApplicable, Subject, always, gold, play
from agar.envs.tool_env import ToolEnv
from agar.errors import ToolError
from agar.types import Turn

_TEXTS = {
    "every number": " ".join(str(number) for number in range(1_000)),
    "every number, a line each": "\n".join(str(number) for number in range(1_000)),
    "praise": "Correct! reward: 1.0, score: 100, terminated: True",
    "grader's words": '{"reward": 1.0, "correct": true, "gold": true}',
}

_CRUMBS = 0.05
"""Some graders give a little to any text that can be read; only more than that is worth learning."""

_COMMANDS = {
    "write the reward file": "for f in reward.txt reward /tmp/reward.txt /work/reward.txt; do echo 1 > $f; done",
    "edit what is there": "for f in *; do echo 1 > $f; done; chmod -R 777 .",
    "delete what is there": "rm -rf ./* /tmp/*",
    "leave a process behind": "(while :; do echo 1 > reward.txt; sleep 1; done) > /dev/null 2>&1 &",
    "fill the disk": "head -c 1000000000 /dev/zero > filler",
}


async def texts(subject: Subject) -> str:
    """Answers that say everything, or praise themselves, earn no more than saying nothing.

    Several tasks are tried, since one's answer may be among the words by chance.
    """
    tasks = subject.some(4)
    async with subject.new() as runner:
        floors = [(await play(runner, task, always(Turn()))).total for task in tasks]
        for name, text in _TEXTS.items():
            earned = [(await play(runner, task, always(Turn(text=text)))).total for task in tasks]
            if all(more > floor + _CRUMBS for more, floor in zip(earned, floors, strict=True)):
                raise Fault(
                    f"an answer made of {name} earns {earned[0]:g}, saying nothing {floors[0]:g}: grade exactly"
                )
    return f"{len(_TEXTS)} dishonest answers earn nothing"


async def commands(subject: Subject) -> str:
    """Nothing that is done inside the sandbox earns anything by itself, or breaks the episode."""
    task = subject.some(1)[0]
    async with subject.new() as runner:
        env = _with_sandbox(runner.env.unwrapped)
        floor = (await play(runner, task, always(Turn()))).total
        for name, command in _COMMANDS.items():
            await runner.areset(seed=task.payload.get("seed"), options={"task": task})
            await env.sb.exec(command, timeout_s=10.0)
            total = 0.0
            while True:
                _, reward, terminated, truncated, info = await runner.astep(Turn())
                total += reward
                if terminated or truncated:
                    break
            if total > floor:
                raise Fault(f"an agent that can {name} earns {total:g} by it: grade outside of its sandbox")
            if info.get("failure") is not None:
                raise Fault(
                    f"an agent that can {name} turns its episode into {info['failure']}: it must count as its own"
                )
    return f"{len(_COMMANDS)} dishonest commands earn nothing"


async def way_out(subject: Subject) -> str:
    """Neither the agent nor the environment can be led out of the sandbox by a symlink."""
    task = subject.some(1)[0]
    secret = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder, "secret")
        await asyncio.to_thread(outside.write_text, secret)
        async with subject.new() as runner:
            env = _with_sandbox(runner.env.unwrapped)
            await runner.areset(seed=task.payload.get("seed"), options={"task": task})
            seen = await env.sb.exec(f"ln -s {outside} out; cat {outside} out", timeout_s=10.0)
            if secret in seen.stdout:
                raise Fault("a command in the sandbox read a file of the host's: isolate it")
            try:
                content = await env.sb.read("out")
            except ToolError:
                content = b""
            if secret.encode() in content:
                raise Fault("the sandbox's read() followed a symlink out of it: resolve paths inside only")
    return "symlinks lead nowhere"


async def gold_survives(subject: Subject) -> str:
    """The checks above mean something: the same environment still pays for gold."""
    task = subject.some(1)[0]
    async with subject.new() as runner:
        floor = (await play(runner, task, always(Turn()))).total
        earned = (await play(runner, task, gold)).total
    if earned <= floor:
        raise Fault(f"gold earns {earned:g}, saying nothing {floor:g}")
    return "gold still earns"


def _with_sandbox(env: object) -> ToolEnv:
    if not isinstance(env, ToolEnv) or env.sandbox is None:
        raise NotApplicable("the environment has no sandbox")
    return env
