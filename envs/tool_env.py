"""Environments whose agent has tools, and perhaps a sandbox in which they run."""

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from agar.envs.artifacts import Artifacts
from agar.envs.base import AsyncEnv, StepResult
from agar.envs.contract import OBSERVATION_CHARS, checked_observation
from agar.envs.episode_sandbox import EpisodeSandbox
from agar.envs.episode_tools import EpisodeTools
from agar.envs.spaces import Observation
from agar.errors import ConfigError, EnvError, SandboxError, ToolError
from agar.tool_servers.text import sendable
from agar.tool_servers.tools import Tool, tool, tools_of
from agar.types import Message, Outcome, Reward, ToolCall, ToolSpec, Turn

if TYPE_CHECKING:
    from agar.sandbox.base import Sandbox
    from agar.sandbox.config import SandboxSpec
    from agar.sandbox.pools import SandboxPools
    from agar.tool_servers.base import Toolbox

__all__ = ["ToolEnv", "tool"]

logger = logging.getLogger(__name__)
_ANSWERS_CHARS = OBSERVATION_CHARS // 2
"""The answers of one turn's calls together; more is cut, for no agent may end its episode by what it has tools say."""


class ToolEnv(AsyncEnv):
    """An environment with tools: methods marked `@tool`.

    A turn with tool calls runs them side by side and answers with one tool message a call, in the order of the calls.
    What is wrong with a call (unknown tool, arguments that do not fit, a passed deadline, a `ToolError`) is in its
    message, for the agent to read. A turn without calls goes to `answer`, which the subclass writes, as it does
    `areset`; so does what is handed in with the tool `submit`, after the turn's other calls.

    With a `sandbox`, every episode has its own, `self.sb`. It starts when it is first used; `setup` then puts the
    episode's files into it. When it fails, the step is truncated with `info["failure"] = Outcome.INFRA_ERROR`; so it is
    when one of its `toolboxes` fails.

    Where what counts is the files that the agent leaves, the subclass writes `grade` in the place of `answer`: once the
    agent has ended its turn without calls, its files are collected, its sandbox is closed, and they are judged in a
    fresh one.
    """

    sandbox: "SandboxSpec | None" = None
    """The sandbox that every episode gets; None for none."""
    sandboxes: "SandboxPools | None" = None
    """Where its sandboxes are leased; a run sets it. None makes them here."""
    toolboxes: "Sequence[Toolbox]" = ()
    """More tools: of services in this process, tool servers (`ToolClient`), MCP servers (`McpTools`). Every episode has
    its own session with each; `tools` shows them from the first reset on."""
    tool_timeout_s: float = 30.0
    """The deadline of one call of a tool that has none of its own."""
    collects: tuple[str, ...] = ("**/*",)
    """Which files of the agent `grade` gets, as `Artifacts.patterns`."""
    submits: ClassVar[bool] = False
    """Whether there is a tool `submit(answer)`, whose call goes to `answer` as a turn with that text does."""

    _tools: ClassVar[Mapping[str, Tool]] = {}
    _sb: EpisodeSandbox | None = None
    _borrowed: EpisodeTools | None = None
    _handed_in: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._tools = tools_of(cls)
        methods = {id(made.method): made.spec.name for made in cls._tools.values()}
        for attribute in set(dir(ToolEnv)) - {ToolEnv.submit.__name__}:  # which is a tool itself
            if (name := methods.get(id(inspect.getattr_static(cls, attribute)))) is not None:
                raise ConfigError(
                    f"{cls.__name__}: the tool {name!r} takes the place of the environment's own {attribute!r}: give "
                    f"the method another name; @tool(name={name!r}) keeps the tool's"
                )
        if not cls.submits:
            cls._tools = {name: item for name, item in cls._tools.items() if item.method is not ToolEnv.submit}

    def __init__(
        self,
        *,
        sandbox: "SandboxSpec | Mapping[str, Any] | None" = None,
        toolboxes: "Sequence[Toolbox | str] | None" = None,
    ) -> None:
        """Make the environment.

        Args:
            sandbox: takes the place of the class's `sandbox`; a mapping (from a recipe) holds its fields.
            toolboxes: take the place of the class's `toolboxes`; a text is the URL of a tool server.
        """
        if sandbox is not None:
            self.sandbox = _spec_from(sandbox)
        if toolboxes is not None:
            self.toolboxes = tuple(_toolbox_from(each) for each in toolboxes)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What the model is told about the tools."""
        own = tuple(item.spec for item in self._tools.values())
        return own if self._borrowed is None else (*own, *self._borrowed.specs)

    @property
    def sb(self) -> EpisodeSandbox:
        """The episode's sandbox.

        Raises:
            EnvError: there is none: the class has no `sandbox`, or no episode has begun.
        """
        if self._sb is None:
            raise EnvError(
                f"{type(self).__name__} has no sandbox: set the class attribute `sandbox`, and call super().areset()"
            )
        return self._sb

    def make_sandbox(self) -> "AbstractAsyncContextManager[Sandbox]":
        """The episode's sandbox, or a lease of it, not started; override it to bring another kind."""
        if self.sandbox is None:
            raise ConfigError(f"{type(self).__name__}.sandbox is None: set it to a SandboxSpec")
        return self.sandbox_of(self.sandbox)

    def make_grading_sandbox(self) -> "AbstractAsyncContextManager[Sandbox]":
        """The sandbox that `grade` gets, not started; override it to show it what the agent must not see."""
        return self.make_sandbox()

    def sandbox_of(self, spec: "SandboxSpec") -> "AbstractAsyncContextManager[Sandbox]":
        """A sandbox that is made of `spec`, not started: leased from `sandboxes`, or made here where there are none."""
        from agar.sandbox.factory import create

        return create(spec) if self.sandboxes is None else self.sandboxes.lease(spec)

    async def setup(self, sb: "Sandbox") -> None:
        """Put the episode's files into its sandbox; called once, when the sandbox is first used."""

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode with a sandbox of its own; subclasses call this first.

        Args:
            seed: seeds `np_random`; None keeps the generator as it is.
            options: `options["task"]` is the `TaskRow` to play.

        Returns:
            Observation and info; this base gives an empty one.

        Raises:
            ToolServerError: a toolbox cannot be reached.
        """
        result = await super().areset(seed=seed, options=options)
        if self.toolboxes:
            await self.arelease()
            self._borrowed = EpisodeTools(self.toolboxes, taken=tuple(self._tools))
            await self._borrowed.open()
            self.__dict__.pop("action_space", None)  # made of the tools
        if self.sandbox is not None:
            self._sb = EpisodeSandbox(self.make_sandbox, setup=self.setup)
        return result

    async def astep(self, action: Turn) -> StepResult:
        """Run the turn's tool calls, or hand a turn without any to `answer`."""
        self._handed_in = None
        try:
            result: StepResult
            if action.tool_calls or action.parse_error is not None:
                messages = await self._call_all(action)
                result = (messages, 0.0, False, False, {})
                if self._handed_in is not None:
                    observation, *rest = await self.answer(Turn(text=self._handed_in))
                    said = checked_observation(observation, name=type(self).__name__)
                    result = ([*messages, *said], *rest)
            else:
                result = await self.answer(action)
            self._check_sandbox()
        except SandboxError as error:
            await self.arelease()
            return [], 0.0, False, True, {"failure": Outcome.INFRA_ERROR, "failure_reason": str(error)}
        if result[2] or result[3]:
            await self.arelease()
        return result

    @tool
    def submit(self, answer: str) -> str:
        """Hand in the final answer."""
        self._handed_in = answer
        return "submitted"

    async def answer(self, action: Turn) -> StepResult:
        """What follows a turn without tool calls: the reward, and the end.

        This base judges the files by `grade`. They are those of the sandbox, or those that the turn's text holds as
        `Artifacts.to_text` gives them: an agent that worked elsewhere hands them in so. An agent whose files cannot be
        collected or laid out (too large, a file in the place of a folder) earns nothing, and
        `info["ungraded"]` says why.

        Raises:
            NotImplementedError: the subclass wrote neither `answer` nor `grade`.
        """
        if type(self).grade is ToolEnv.grade:
            raise NotImplementedError(f"{type(self).__name__} must write answer(self, action: agar.Turn)")
        try:
            artifacts = Artifacts.from_text(action.text, self.collects)
            if artifacts is None:
                artifacts = await Artifacts.collect(self.sb, self.collects)
            await self.arelease()  # the agent is gone before it is judged
            async with self.make_grading_sandbox() as fresh:
                reward = await self.grade(fresh, artifacts)
        except ToolError as error:
            return [], 0.0, True, False, {"ungraded": str(error)}
        return [], reward.total, True, False, {"reward_parts": dict(reward.parts)}

    async def grade(self, fresh: "Sandbox", artifacts: Artifacts) -> Reward:
        """Judge what the agent left, once it is gone.

        Args:
            fresh: a sandbox of the same kind that nobody has used; not set up. It is closed afterwards.
            artifacts: the files that match `collects`.

        Raises:
            NotImplementedError: the subclass did not write it.
            ToolError: the files cannot be laid out: the agent's doing.
            SandboxError: the sandbox failed: nobody's doing.
        """
        raise NotImplementedError(f"{type(self).__name__} must write grade(self, fresh, artifacts)")

    def close(self) -> None:
        """Let go of what the episode holds, wherever it was used, and stop the loop. Idempotent."""
        in_use = (self._sb is not None and self._sb.started) or (self._borrowed is not None and self._borrowed.is_open)
        if self._driver is None and in_use:
            self._drive(self.arelease, "arelease")
        super().close()

    async def arelease(self) -> None:
        """Close the episode's sandbox and end its sessions with toolboxes. Idempotent.

        One that does not go away is logged: it changes nothing about the episode, and its backend keeps after it.
        """
        if self._sb is not None:
            try:
                await self._sb.close()
            except SandboxError as error:
                logger.warning("%s could not close its sandbox: %s", type(self).__name__, error)
        if self._borrowed is not None:
            await self._borrowed.close()

    def _check_sandbox(self) -> None:
        """Raise what a tool may have caught, or a deadline cut off: a failed sandbox fails the episode."""
        for held in (self._sb, self._borrowed):
            if held is not None and held.failure is not None:
                raise SandboxError(held.failure)

    async def _call_all(self, action: Turn) -> list[Message]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._call(call)) for call in action.tool_calls]
        except BaseExceptionGroup as errors:  # the group cancelled the others: one failure stands for the turn
            raise errors.exceptions[0] from errors
        answers = [
            Message(role="tool", content=_held(task.result(), _ANSWERS_CHARS // len(tasks)), tool_call_id=call.id)
            for call, task in zip(action.tool_calls, tasks, strict=True)
        ]
        if action.parse_error is not None:
            said = _held(f"Tool call not understood: {action.parse_error}", _ANSWERS_CHARS)
            answers.append(Message(role="user", content=said))
        return answers

    async def _call(self, call: ToolCall) -> str:
        known = self._tools.get(call.name)
        try:
            if known is not None:
                return await known.call(self, call.arguments, timeout_s=self.tool_timeout_s)
            if self._borrowed is not None and call.name in self._borrowed:
                return await self._borrowed.call(call.name, call.arguments, timeout_s=self.tool_timeout_s)
            names = ", ".join(spec.name for spec in self.tools)
            raise ToolError(f"no tool {call.name!r}; there are: {names or 'none'}")
        except ToolError as error:
            return f"error: {error}"


def _held(text: str, most_chars: int) -> str:
    """What a conversation can hold of a text that an agent has shaped: no half of a surrogate pair, no end of text."""
    whole = sendable(text)
    left = len(whole) - most_chars
    return whole if left <= 0 else f"{whole[:most_chars]}\n... {left} characters left out"


def _spec_from(value: "SandboxSpec | Mapping[str, Any]") -> "SandboxSpec":
    from agar.sandbox.config import SandboxSpec

    return SandboxSpec.model_validate(value) if isinstance(value, Mapping) else value


def _toolbox_from(value: "Toolbox | str") -> "Toolbox":
    from agar.tool_servers.client import ToolClient

    return ToolClient(value) if isinstance(value, str) else value
