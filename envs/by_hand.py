"""A person plays: lines in, exchanges out."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from agar.envs.rendering import heard
from agar.envs.runner import AsyncRunner
from agar.tool_servers.background import in_thread
from agar.types import TaskRow, ToolCall, ToolSpec, Turn

HELP = """\
A line is what you say. Other lines:
  /call NAME {"argument": …}   call a tool (NAME alone where it takes nothing)
  /tools                       the tools and their arguments
  /gold                        what the author would do next
  /quit                        leave"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How an episode by hand went."""

    turns: int
    """Turns taken."""
    reward: float
    """The sum of the rewards."""
    over: bool
    """False where the person left before the end."""


async def play_by_hand(
    runner: AsyncRunner, task: TaskRow, *, read: Callable[[], str | None], write: Callable[[str], None]
) -> Played:
    """Play one episode.

    Args:
        runner: the environment.
        task: the task to play.
        read: gives the next line, None at the end of the input; it may block.
        write: shows a text.

    Raises:
        EnvError, SandboxError: the environment failed.
    """
    observation, _ = await runner.areset(seed=task.payload.get("seed"), options={"task": task})
    _show(heard(observation), write)
    turns, reward = 0, 0.0
    while (line := await in_thread(read, name="agar-play")) is not None and line.strip() != "/quit":
        turn = await _turn(line, turns, runner, write)
        if turn is None:
            continue
        observation, gained, terminated, truncated, info = await runner.astep(turn)
        turns += 1
        reward += gained
        _show(heard(observation), write)
        if gained:
            write(f"[reward {gained:g}]")
        if terminated or truncated:
            why = str(info.get("failure_reason") or info.get("truncated_by") or "")
            write(f"[{'the end' if terminated else 'cut off'}{f': {why}' if why else ''}]")
            return Played(turns=turns, reward=reward, over=True)
    return Played(turns=turns, reward=reward, over=False)


async def _turn(line: str, number: int, runner: AsyncRunner, write: Callable[[str], None]) -> Turn | None:
    """The turn that a line stands for, or None where it only asked something."""
    word, _, rest = line.strip().partition(" ")
    match word:
        case "/help":
            write(HELP)
        case "/tools":
            write("\n".join(_signature(spec) for spec in runner.tools) or "There are no tools.")
        case "/gold":
            gold = await runner.agold()
            write("The author does not say." if gold is None else _spelled(gold))
        case "/call":
            name, _, arguments = rest.strip().partition(" ")
            try:
                found = json.loads(arguments or "{}")
            except ValueError as error:
                write(f"The arguments are not JSON: {error}")
                return None
            if not isinstance(found, dict):
                write('The arguments must be an object, like {"command": "ls"}.')
                return None
            return Turn(tool_calls=(ToolCall(id=f"call_{number}", name=name, arguments=found),))
        case _:
            return Turn(text=line)
    return None


def _show(lines: list[str], write: Callable[[str], None]) -> None:
    for line in lines:
        write(line)


def _signature(spec: ToolSpec) -> str:
    arguments = ", ".join(
        f"{name}: {schema.get('type', 'any')}" for name, schema in spec.parameters.get("properties", {}).items()
    )
    return f"{spec.name}({arguments}): {spec.description}"


def _spelled(turn: Turn) -> str:
    """A turn as the lines that say it."""
    calls = [f"/call {call.name} {json.dumps(dict(call.arguments))}" for call in turn.tool_calls]
    return "\n".join([*([turn.text] if turn.text else []), *calls])
