"""Hunt-v0: follow a trail of files in a sandbox to the gold, and say how much it is.

Every box is a file named by its number and holds `box NN` (look there next) or `gold NN`. The task names the first
box; one to four boxes on lies the gold. All the other boxes lie on decoy trails with other amounts, so that reading
everything at once does not tell which gold is meant. The texts are as short as they can be: the agents that learn it
on a laptop have half a million parameters and 512 tokens.
"""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from agar.envs.base import StepResult, task_of
from agar.envs.spaces import Observation
from agar.envs.tasks import GeneratedTasks, TaskSet, check_split
from agar.envs.tool_env import ToolEnv
from agar.errors import ConfigError, ToolError
from agar.tool_servers.tools import tool
from agar.types import Message, TaskRow, ToolCall, Turn

if TYPE_CHECKING:
    from agar.sandbox.base import Sandbox
    from agar.sandbox.config import SandboxSpec

BOXES = range(10, 50)
"""The numbers of the boxes; every one of them exists in every task."""
AMOUNTS = range(10, 100)
"""The amounts of gold."""
MAX_HOPS = 4
"""The longest trail: how many boxes must be opened at most."""

_HELDOUT_SHARE = 5
"""One in this many trails belongs to the held-out split."""
_SIZES = {"train": 65_536, "heldout": 4_096}


class Hunt(ToolEnv):
    """A treasure hunt through files; reward 1 if the final text is exactly the amount of gold."""

    tool_timeout_s = 60.0
    command_timeout_s = 20.0
    """How long one command may run; then it is killed and the agent is told."""
    output_chars = 120
    """The longest tool answer; the rest is cut, so that one `cat *` cannot fill a small context."""

    def __init__(self, *, sandbox: "SandboxSpec | Mapping[str, Any] | None" = None) -> None:
        """Make the environment; `sandbox` defaults to the default `SandboxSpec`."""
        super().__init__(sandbox={} if sandbox is None else sandbox)

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Take the task of `options`, or draw one of the train split."""
        await super().areset(seed=seed, options=options)
        task = task_of(options)
        if task is None:
            task = tasks("train")[int(self.np_random.integers(0, _SIZES["train"]))]
        self.task = task
        self._opened = 0
        return [Message(role="system", content="Find the gold."), Message(role="user", content=task.prompt)], {}

    async def setup(self, sb: "Sandbox") -> None:
        """Lay out the boxes."""
        for number, content in boxes(self.task).items():
            await sb.write(str(number), content)

    @tool
    async def sh(self, command: str) -> str:
        """Run a command."""
        if "\0" in command:
            raise ToolError("a command cannot hold a NUL character")
        result = await self.sb.exec(command, timeout_s=self.command_timeout_s)
        text = result.stdout.strip()
        if not text and result.code:
            text = f"killed ({result.killed_by})" if result.killed_by else f"exit {result.code}"
        return text if len(text) <= self.output_chars else text[: self.output_chars] + "..."

    async def astep(self, action: Turn) -> StepResult:
        """Run the commands, or grade the answer."""
        self._opened += len(action.tool_calls) > 0
        return await super().astep(action)

    async def answer(self, action: Turn) -> StepResult:
        """Grade the final text."""
        right = action.text.strip() == str(self.task.payload["gold"])
        return [], float(right), True, False, {"reward_parts": {"gold": float(right)}}

    def gold(self) -> Turn:
        """Open the next box of the trail, or say the amount."""
        trail = self.task.payload["trail"]
        if self._opened < len(trail):
            return open_box(trail[self._opened], call=self._opened)
        return Turn(text=str(self.task.payload["gold"]))


def open_box(number: int, *, call: int) -> Turn:
    """The turn that reads a box; `call` numbers the call within the episode."""
    return Turn(tool_calls=(ToolCall(id=f"call_{call}", name="sh", arguments={"command": f"cat {number}"}),))


def boxes(task: TaskRow) -> dict[int, str]:
    """What every box of a task holds, by number: the trail of its payload and the decoys of its seed."""
    payload = task.payload
    try:
        trail, gold, seed = list(payload["trail"]), int(payload["gold"]), int(payload["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"a task of Hunt-v0 needs trail, gold and seed, got {dict(payload)}: take it from its tasks"
        ) from error
    rng = np.random.default_rng([seed, 1])
    others = [number for number in (BOXES.start + rng.permutation(len(BOXES))).tolist() if number not in trail]
    lengths = rng.integers(1, MAX_HOPS + 1, size=len(others)).tolist()
    amounts = (AMOUNTS.start + rng.integers(0, len(AMOUNTS) - 1, size=len(others))).tolist()
    content = _chain(trail, gold)
    while others:
        length, amount = lengths.pop(), amounts.pop()
        decoy, others = others[:length], others[length:]
        content |= _chain(decoy, amount + (amount >= gold))  # any amount but the right one
    return dict(sorted(content.items()))  # in the order of the numbers: where a box comes from must not show


def tasks(split: str) -> TaskSet:
    """The task set of a split.

    A trail (start, boxes, amount) belongs to one split by its hash, whatever index or seed it was drawn with, so that
    no held-out trail is ever trained on.

    Raises:
        ConfigError: the split is unknown.
    """
    offset = {"train": 0, "heldout": 1}[check_split(split)]
    return GeneratedTasks(lambda index: _row(split, 2 * index + offset, index), size=_SIZES[split])


def split_of(trail: list[int], gold: int) -> str:
    """The split to which a trail belongs."""
    digest = hashlib.blake2s(f"{trail} {gold}".encode(), digest_size=4).digest()
    return "heldout" if int.from_bytes(digest) % _HELDOUT_SHARE == 0 else "train"


def _row(split: str, seed: int, index: int) -> TaskRow:
    rng = np.random.default_rng([seed, 0])
    while True:
        hops = int(rng.integers(1, MAX_HOPS + 1))
        trail = (BOXES.start + rng.permutation(len(BOXES))[:hops]).tolist()
        gold = AMOUNTS.start + int(rng.integers(0, len(AMOUNTS)))
        if split_of(trail, gold) == split:
            break
    return TaskRow(
        key=f"{split}/{index}",
        prompt=f"Start at {trail[0]}.",
        payload={"seed": seed, "trail": trail, "gold": gold},
        split=split,
        env="Hunt-v0",
    )


def _chain(trail: list[int], gold: int) -> dict[int, str]:
    ahead = [f"box {number}" for number in trail[1:]] + [f"gold {gold}"]
    return {number: f"{content}\n" for number, content in zip(trail, ahead, strict=True)}
