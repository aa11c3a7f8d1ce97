"""ReTool-v0: a mathematical problem, and a Python interpreter to work it out with."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import agar
from agar.envs import Conversation, Rubric
from agar.envs.base import StepResult, task_of
from agar.envs.contract import checked_observation
from agar.envs.spaces import Observation
from agar.errors import EnvError
from agar.examples.retool.problems import problems
from agar.sandbox.kernel.cell import Cell
from agar.sandbox.kernel.config import KernelConfig
from agar.sandbox.kernel.kernel import Kernel
from agar.tool_servers.base import Deadline
from agar.types import Message, TaskRow, ToolCall, Turn

if TYPE_CHECKING:
    from agar.sandbox.base import Sandbox
    from agar.sandbox.config import SandboxSpec

TOLD = (
    "Solve the problem step by step. Run Python where it helps: variables are kept from one call to the next, and the "
    "value of the last line is shown. Put the final answer, alone, in \\boxed{}."
)


class ReTool(agar.ToolEnv):
    """A problem; the reward is the rubric's, of the final answer."""

    def __init__(
        self,
        *,
        sandbox: "SandboxSpec | Mapping[str, Any] | None" = None,
        kernel: KernelConfig | Mapping[str, Any] | None = None,
        rubric: Rubric | str = "agar.examples.retool.reward:MATHS",
        told: str = TOLD,
        brief: bool = False,
    ) -> None:
        """Make the environment.

        Args:
            sandbox: what the interpreter runs in; default the default `SandboxSpec`.
            kernel: the interpreter, and the deadline of its cells.
            rubric: grades the answer, or `module:attr` that names one.
            told: the system message; empty for none.
            brief: show only the last line of a traceback.
        """
        super().__init__(sandbox={} if sandbox is None else sandbox)
        self.rubric = Rubric.named(rubric)
        self._kernel_config = KernelConfig.model_validate(kernel or {})
        self._told, self._brief = told, brief

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Pose the problem of `options`, or a small one."""
        await super().areset(seed=seed, options=options)
        self.task = self._task(options)
        self._kernel = Kernel(self.sb, self._kernel_config)
        told = [Message(role="system", content=self._told)] if self._told else []
        self._said = [*told, Message(role="user", content=self.task.prompt)]
        return list(self._said), {}

    @agar.tool
    async def python(self, code: str, deadline: Deadline) -> str:
        """Run Python. Variables are kept for the next call; the value of the last line is shown.

        Args:
            code: the program.
            deadline: how long it may run.
        """
        cell = await self._kernel.run(code, timeout_s=min(deadline, self._kernel_config.cell_timeout_s))
        return self._shown(cell) or "(no output)"

    async def astep(self, action: Turn) -> StepResult:
        """Run code, or grade the answer."""
        self._said.append(action.message())
        result = await super().astep(action)
        self._said += checked_observation(result[0], name="ReTool")
        return result

    async def answer(self, action: Turn) -> StepResult:
        """Grade the final text."""
        reward = await self.rubric.grade("trajectory", Conversation(task=self.task, messages=tuple(self._said)))
        return [], reward.total, True, False, {"reward_parts": dict(reward.parts)}

    def make_sandbox(self) -> "AbstractAsyncContextManager[Sandbox]":
        """One that runs code; the scripted one plays integer arithmetic, which demonstrations get by with."""
        if self.sandbox is not None and self.sandbox.backend == "fake":
            from agar.examples.retool.played import PlayedSandbox

            return PlayedSandbox(self.sandbox)
        return super().make_sandbox()

    def gold(self) -> Turn | None:
        """Run the problem's cells, then say the answer; None for a problem that does not say how."""
        made = sum(message.role == "tool" for message in self._said)
        cells = self.task.payload.get("cells")
        if cells is None:
            return None
        return run(cells[made], call=made) if made < len(cells) else boxed(self.task.payload["answer"])

    def _task(self, options: Mapping[str, Any] | None) -> TaskRow:
        task = task_of(options)
        if task is None:
            return problems.given_or_drawn(options, self.np_random)
        if "answer" not in task.payload:
            raise EnvError(f"task {task.key!r} has no 'answer' in its payload: name its column in the recipe")
        return task

    def _shown(self, cell: Cell) -> str:
        text = cell.to_text()
        if self._brief and cell.error is not None:
            return text.replace(cell.error.rstrip("\n"), cell.error.rstrip("\n").rpartition("\n")[2])
        return text


def run(code: str, *, call: int) -> Turn:
    """The turn that runs a cell; `call` numbers it within the episode."""
    return Turn(tool_calls=(ToolCall(id=f"call_{call}", name="python", arguments={"code": code}),))


def boxed(answer: object) -> Turn:
    """The turn that answers."""
    return Turn(text=f"\\boxed{{{answer}}}")


def small(**kwargs: Any) -> ReTool:
    """The same for a very small policy: numbers, short texts."""
    return ReTool(**{"rubric": "agar.examples.retool.reward:NUMBERS", "told": "Run it.", "brief": True, **kwargs})


agar.register("ReTool-v0", ReTool, max_turns=16, tasks=problems)
agar.register("ReToolSmall-v0", small, max_turns=6, tasks=problems)
