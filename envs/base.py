"""The environment contract: `Env` and `AsyncEnv` are `gymnasium.Env` classes whose actions are turns."""

import functools
import inspect
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import gymnasium
from gymnasium.spaces import Space

from agar.envs.contract import checked_gold
from agar.envs.driver import LoopThread
from agar.envs.rendering import rendering
from agar.envs.spaces import MessageSpace, Observation, TurnSpace
from agar.types import TaskRow, ToolSpec, Turn

T = TypeVar("T")

StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]
"""observation, reward, terminated (the task ended), truncated (a budget ended), info."""


def _accepting_text(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a step method be called with a str where it expects a Turn; remember the turn for `render`."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def astep(self: "Env", action: Turn | str) -> Any:
            turn = Turn.of(action)
            result = await method(self, turn)
            self._remember(turn, result)
            return result

        return astep

    @functools.wraps(method)
    def step(self: "Env", action: Turn | str) -> Any:
        turn = Turn.of(action)
        result = method(self, turn)
        self._remember(turn, result)
        return result

    return step


def _remembered(method: Callable[..., Any]) -> Callable[..., Any]:
    """Remember for `render` what a reset method gives."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def areset(self: "Env", **kwargs: Any) -> Any:
            result = await method(self, **kwargs)
            self._remember(None, result)
            return result

        return areset

    @functools.wraps(method)
    def reset(self: "Env", **kwargs: Any) -> Any:
        result = method(self, **kwargs)
        self._remember(None, result)
        return result

    return reset


class Env(gymnasium.Env[Observation, Turn]):
    """An environment that an agent plays in turns.

    Subclasses write `reset` and `step` as Gymnasium asks for them; the first line of `reset` is
    `super().reset(seed=seed)`. `step` may be called with a `str`: it arrives as a `Turn`.

    `options["task"]` of `reset` holds the `TaskRow` where the caller has one. `info` may hold `reward_parts`
    (`dict[str, float]`) and `failure` (an `Outcome`).
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # Gymnasium's own form
    _latest: tuple[Turn | None, Any] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for names, around in ((("step", "astep"), _accepting_text), (("reset", "areset"), _remembered)):
            for name in names:
                if name in cls.__dict__:
                    setattr(cls, name, around(cls.__dict__[name]))

    @functools.cached_property
    def observation_space(self) -> Space[Observation]:  # type: ignore[override]
        """Texts and messages."""
        return MessageSpace()

    @functools.cached_property
    def action_space(self) -> Space[Turn]:  # type: ignore[override]
        """Turns, with calls of this environment's tools."""
        return TurnSpace(self.tools)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the agent may call; none unless a subclass says so."""
        return ()

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Seed `np_random`; subclasses call this first and return their own first observation.

        Args:
            seed: seeds `np_random`; None keeps the generator as it is.
            options: `options["task"]` is the `TaskRow` to play.

        Returns:
            Observation and info; this base gives an empty one.
        """
        gymnasium.Env.reset(self, seed=seed)
        return "", {}

    def render(self) -> str | None:
        """The latest turn and what it was answered, as a text; None where the render mode is not `ansi`.

        An author who has more to show (a board, a map) writes it over.
        """
        if self.render_mode != "ansi":
            return None
        if self._latest is None:
            return "Nothing has happened yet."
        turn, result = self._latest
        return rendering(turn, result)

    def _remember(self, turn: Turn | None, result: Any) -> None:
        if self.render_mode == "ansi":
            self._latest = (turn, result)

    def gold(self) -> Turn | str | None:
        """The best next turn from where the episode stands, by an author who knows the answer.

        The conformance check plays it to see that the reward tells good from bad. None: not provided.
        """
        return None


class AsyncEnv(Env):
    """An environment whose steps wait for something: subclasses write `areset` and `astep`.

    `reset` and `step` drive them on an event loop of the environment's own, so that everything written for Gymnasium
    works; the rollout awaits `areset` and `astep` directly.
    """

    drive_timeout_s: float = 600.0
    """How long `reset`, `step` and `close` wait for the coroutine that they drive."""

    _driver: LoopThread | None = None

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; subclasses call `await super().areset(seed=seed, options=options)` first.

        Args:
            seed: seeds `np_random`; None keeps the generator as it is.
            options: `options["task"]` is the `TaskRow` to play.

        Returns:
            Observation and info; this base gives an empty one.
        """
        await self.arelease()
        gymnasium.Env.reset(self, seed=seed)
        return "", {}

    async def astep(self, action: Turn) -> StepResult:
        """Take one turn.

        Raises:
            NotImplementedError: the subclass did not write it.
        """
        raise NotImplementedError(f"{type(self).__name__} must write astep(self, action: agar.Turn)")

    async def agold(self) -> Turn | str | None:
        """`gold`, where it must be awaited; subclasses write one of the two."""
        return self.gold()

    async def arelease(self) -> None:
        """Let go of what the episode holds (a sandbox); the environment can be reset again. Idempotent."""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Drive `areset`.

        Raises:
            DeadlineError: it took longer than `drive_timeout_s`.
        """
        return self._drive(lambda: self.areset(seed=seed, options=options), "areset")

    def step(self, action: Turn) -> StepResult:
        """Drive `astep`.

        Raises:
            DeadlineError: it took longer than `drive_timeout_s`.
        """
        return self._drive(lambda: self.astep(action), "astep")

    def release(self) -> None:
        """Drive `arelease`, where there is anything to let go of.

        Raises:
            DeadlineError: it took longer than `drive_timeout_s`.
        """
        if self._driver is not None:
            self._drive(self.arelease, "arelease")

    def close(self) -> None:
        """Release the episode and stop the loop; calling it again does nothing."""
        if self._driver is not None:
            driver, self._driver = self._driver, None
            if driver.ended:  # and what it held with it
                return
            try:
                driver.run(self.arelease(), timeout_s=self.drive_timeout_s, what=f"{type(self).__name__}.arelease")
            finally:
                driver.close()

    def _drive(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        if self._driver is None or self._driver.ended:
            self._driver = LoopThread(f"agar-env-{type(self).__name__}")
            weakref.finalize(self, self._driver.close)
        return self._driver.run(work(), timeout_s=self.drive_timeout_s, what=f"{type(self).__name__}.{name}")


def gold_of(env: Env) -> Turn | None:
    """The best next turn, asked where the environment lives: an `AsyncEnv` that is driven answers on its own loop.

    Raises:
        DeadlineError: it took longer than `drive_timeout_s`.
        EnvError: it gave something that is no turn.
    """
    turn = env._drive(env.agold, "agold") if isinstance(env, AsyncEnv) else env.gold()
    return checked_gold(turn, name=type(env).__name__)


def task_of(options: Mapping[str, Any] | None) -> TaskRow | None:
    """The task in the options of a reset, or None where the caller gave none."""
    return options.get("task") if options else None
