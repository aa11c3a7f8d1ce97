"""L4: what goes wrong is attributed to whom it belongs: a dead sandbox is excluded, a bad turn is answered."""

import asyncio
from typing import Any, NoReturn

from agar.envs.checks.subject import Fault, NotApplicable, Subject, gold
from agar.envs.runner import AsyncRunner
from agar.envs.tool_env import ToolEnv
from agar.errors import SandboxError
from agar.types import Finish, Outcome, TaskRow, ToolCall, Turn


class BrokenSandbox:
    """A sandbox that does not start, or dies at the first command, or never answers one."""

    def __init__(self, fault: str) -> None:
        """Make one; `fault` is `start`, `exec` or `hang`."""
        self.fault = fault
        self.used = False

    async def __aenter__(self) -> "BrokenSandbox":
        self.used = True
        if self.fault == "start":
            self._die()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def exec(self, *_: Any, **__: Any) -> NoReturn:
        """Die or hang."""
        if self.fault == "hang":
            await asyncio.sleep(3600)
        self._die()

    read = get = start = exec

    async def write(self, *_: Any) -> None:
        """Take it; the files are never seen again."""

    put = write

    async def close(self) -> None:
        """Nothing is open."""

    def _die(self) -> NoReturn:
        raise SandboxError(f"the check broke the sandbox at {self.fault}")


async def dead_sandbox(subject: Subject) -> str:
    """A sandbox that cannot start, or dies, truncates the episode as an infrastructure failure."""
    for fault in ("start", "exec"):
        info, truncated, reward = await _gold_in(subject, BrokenSandbox(fault))
        if not truncated or info.get("failure") != Outcome.INFRA_ERROR:
            raise Fault(
                f"with a sandbox that fails at {fault} the episode is not truncated with "
                'info["failure"] = Outcome.INFRA_ERROR: let SandboxError out of astep'
            )
        if reward != 0.0:
            raise Fault(f"with a sandbox that fails at {fault} the episode earned {reward:g}: a failure earns nothing")
    return "a dead sandbox is excluded, not scored"


async def slow_tool(subject: Subject) -> str:
    """A tool that hangs is answered at its deadline."""
    sandbox = BrokenSandbox("hang")
    async with subject.new() as runner:
        env = _tool_env(runner)
        own = [tool.timeout_s for tool in env._tools.values() if tool.timeout_s is not None]
        if own:
            raise NotApplicable("its tools have deadlines of their own")
        env.tool_timeout_s = 0.05
        env.make_sandbox = lambda: sandbox  # type: ignore[assignment,method-assign,return-value]
        await _start(runner, subject.some(1)[0])
        try:
            async with asyncio.timeout(10):
                observation, _, terminated, truncated, _ = await runner.astep(await gold(runner, 0))
        except TimeoutError as error:
            raise Fault("a hanging tool held up its step for 10 s: await the sandbox inside the tool") from error
        if not sandbox.used:
            raise NotApplicable("its first gold turn does not use the sandbox")
        if terminated or truncated or not observation:
            raise Fault("a hanging tool ended the episode or went unanswered: let the deadline answer")
    return "a hanging tool is answered at its deadline"


async def malformed_turns(subject: Subject) -> str:
    """No turn, however broken, makes the environment raise."""
    task = subject.some(1)[0]
    async with subject.new() as runner:
        turns = _malformed(runner)
        for name, turn in turns.items():
            await _start(runner, task)
            try:
                await runner.astep(turn)
            except Exception as error:  # whatever it raises is the finding
                raise Fault(f"a turn with {name} makes it raise {type(error).__name__}: {error}") from error
    return f"{len(turns)} malformed turns are answered"


async def closing(subject: Subject) -> str:
    """It can be closed twice, and in the middle of an episode."""
    runner = subject.new()
    close = runner.env.close

    def twice() -> None:  # both in the environment's own thread
        close()
        close()

    runner.env.close = twice  # type: ignore[method-assign]
    await _start(runner, subject.some(1)[0])
    await runner.aclose()
    return "it closes in mid-episode, and twice"


async def _gold_in(subject: Subject, sandbox: BrokenSandbox) -> tuple[dict[str, Any], bool, float]:
    async with subject.new() as runner:
        env = _tool_env(runner)
        env.make_sandbox = lambda: sandbox  # type: ignore[assignment,method-assign,return-value]
        await _start(runner, subject.some(1)[0])
        total = 0.0
        for turn in range(100):
            _, reward, terminated, truncated, info = await runner.astep(await gold(runner, turn))
            total += reward
            if terminated or truncated:
                break
    if not sandbox.used:
        raise NotApplicable("gold does not use the sandbox")
    return info, truncated, total


def _tool_env(runner: AsyncRunner) -> ToolEnv:
    env = runner.env.unwrapped
    if not isinstance(env, ToolEnv) or env.sandbox is None:
        raise NotApplicable("the environment has no sandbox")
    return env


async def _start(runner: AsyncRunner, task: TaskRow) -> None:
    await runner.areset(seed=task.payload.get("seed"), options={"task": task})


def _malformed(runner: AsyncRunner) -> dict[str, Turn]:
    name = runner.tools[0].name if runner.tools else "sh"
    parameters = list(runner.tools[0].parameters.get("properties", {})) if runner.tools else ["command"]

    def call(tool: str, **arguments: Any) -> Turn:
        return Turn(tool_calls=(ToolCall(id="call_0", name=tool, arguments=arguments),))

    def filled(value: Any) -> Turn:
        return call(name, **dict.fromkeys(parameters, value))

    return {
        "nothing in it": Turn(),
        "a parse error": Turn(text="<tool_call>{", parse_error="not JSON"),
        "a cut end": Turn(text="The answer is", finish=Finish.LENGTH),
        "an unknown tool": call("no_such_tool"),
        "no arguments": call(name),
        "unknown arguments": call(name, no_such_argument=1),
        "null arguments": filled(None),
        "nested arguments": filled({"a": [{}]}),
        "a NUL character": filled("cat \0"),
        "half a surrogate pair": filled("cat \ud800"),
        "half a surrogate pair as its text": Turn(text="\ud800"),
        "a hundred thousand characters": filled("x" * 100_000),
        "a hundred thousand characters as its text": Turn(text="9" * 100_000),
        "two calls with one id": Turn(tool_calls=(ToolCall(id="a", name=name), ToolCall(id="a", name=name))),
    }
