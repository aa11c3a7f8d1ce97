"""Many environments side by side, as Gymnasium's vector environments: a pool on one event loop."""

import asyncio
import weakref
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from agar.envs.driver import LoopThread
from agar.envs.registry import Isolation, make, spec
from agar.envs.runner import as_async
from agar.errors import AgarError, ConfigError, DeadlineError, EngineError, EnvError, SandboxError
from agar.types import Message, Outcome, Turn

if TYPE_CHECKING:
    from agar.envs.isolation.config import ProcessLimits

Observations = tuple[list[Message], ...]
"""One list of messages an environment."""
T = TypeVar("T")
_Numbers = npt.NDArray[np.float64]
_Flags = npt.NDArray[np.bool_]
_FAILURES = (EnvError, SandboxError, EngineError, DeadlineError)
"""What ends one episode, and not those beside it."""


def make_vec(
    id: str,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    isolation: Isolation | None = None,
    limits: "ProcessLimits | None" = None,
    step_timeout_s: float = 600.0,
    **kwargs: Any,
) -> "PoolVectorEnv":
    """Make many environments of one kind that are stepped at the same time.

    Args:
        id: their name.
        num_envs: how many.
        autoreset_mode: when an environment whose episode has ended starts another, as Gymnasium says.
        isolation: where each runs; see `make`.
        limits: what the process of each may use.
        step_timeout_s: how long one reset or step of one environment may take.
        kwargs: arguments of the constructor.

    Returns:
        A `gymnasium.vector.VectorEnv`.

    Raises:
        ConfigError: as `make`; or num_envs is below 1, or the autoreset mode is none.
    """
    if num_envs < 1:
        raise ConfigError(f"num_envs must be at least 1, got {num_envs}")
    try:
        mode = AutoresetMode(autoreset_mode)
    except ValueError as error:
        choices = ", ".join(repr(each.value) for each in AutoresetMode)
        raise ConfigError(f"autoreset_mode must be one of {choices}, got {autoreset_mode!r}") from error
    known = spec(id)
    envs = [make(id, isolation=isolation, limits=limits, **kwargs) for _ in range(num_envs)]
    return PoolVectorEnv(envs, max_turns=known.max_turns, autoreset_mode=mode, step_timeout_s=step_timeout_s)


class PoolVectorEnv(VectorEnv[Observations, Sequence[Turn | str], Any]):
    """Environments that wait together: one step takes as long as its slowest, not as their sum.

    Rewards, ends, infos and the autoreset modes are Gymnasium's. An environment that fails does not take the others
    with it: its step is truncated with `info["failure"]`, which takes the episode out of statistics, and it starts
    another as after any end.
    """

    def __init__(
        self,
        envs: Sequence[gymnasium.Env[Any, Any]],
        *,
        max_turns: int | None,
        autoreset_mode: AutoresetMode,
        step_timeout_s: float,
    ) -> None:
        """See `make_vec`."""
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        self.autoreset_mode = autoreset_mode
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = self.envs[0].render_mode
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._runners = [as_async(env, max_turns=max_turns, step_timeout_s=step_timeout_s) for env in self.envs]
        self._timeout_s = 2 * step_timeout_s + 60.0  # a reset and a step each, and some air
        self._observations: list[list[Message]] = [[] for _ in self.envs]
        self._over = np.ones(self.num_envs, dtype=np.bool_)
        self._driver: LoopThread | None = LoopThread("agar-vector-env")
        weakref.finalize(self, self._driver.close)  # its thread holds nothing of this, and would stay for ever

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Reset all, or those of `options["reset_mask"]`.

        Args:
            seed: of the first, which counts up for the others; or one for each.
            options: for each reset; `options["task"]` is the same task for all.

        Raises:
            EnvError: one could not be reset.
            ConfigError: there are more or fewer seeds or mask entries than environments.
        """
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs)), dtype=np.bool_)
        if isinstance(seed, int):
            seed = [seed + index for index in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs or mask.shape != (self.num_envs,):
            raise ConfigError(f"expected {self.num_envs} seeds and a mask as long, got {len(seeds)} and {mask.shape}")

        async def all_of_them() -> list[tuple[list[Message], dict[str, Any]] | None]:
            async def one(index: int) -> tuple[list[Message], dict[str, Any]] | None:
                if not mask[index]:
                    return None
                return await self._runners[index].areset(seed=seeds[index], options=options)

            return await _all(one(index) for index in range(self.num_envs))

        results = self._run(all_of_them(), "reset")
        infos: dict[str, Any] = {}
        for index, result in enumerate(results):
            if result is not None:
                self._observations[index] = result[0]
                infos = self._add_info(infos, result[1], index)
        self._over = self._over & ~mask
        return tuple(self._observations), infos

    def step(self, actions: Sequence[Turn | str]) -> tuple[Observations, _Numbers, _Flags, _Flags, dict[str, Any]]:
        """One turn of each; what stands for an environment that is only reset now is not looked at.

        Raises:
            ConfigError: there are more or fewer actions than environments, or an episode is over and nothing resets it.
        """
        if len(actions) != self.num_envs:
            raise ConfigError(f"expected {self.num_envs} actions, got {len(actions)}")
        if self.autoreset_mode == AutoresetMode.DISABLED and self._over.any():
            raise ConfigError(
                f"the episodes of {np.flatnonzero(self._over).tolist()} are over: reset them with "
                'options={"reset_mask": …}'
            )

        async def all_of_them() -> list[tuple[Any, ...]]:
            return await _all(self._one(index, action) for index, action in enumerate(actions))

        results = self._run(all_of_them(), "step")
        infos: dict[str, Any] = {}
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated, truncated = np.zeros(self.num_envs, dtype=np.bool_), np.zeros(self.num_envs, dtype=np.bool_)
        for index, (observation, reward, ended, cut, info, final) in enumerate(results):
            self._observations[index] = observation
            rewards[index], terminated[index], truncated[index] = reward, ended, cut
            if final is not None:
                infos = self._add_info(infos, final, index)
            infos = self._add_info(infos, info, index)
        self._over = terminated | truncated
        return tuple(self._observations), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...]:
        """What each environment draws."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Close all of them.

        Raises:
            EnvError: one could not be closed; the others are.
        """
        if self._driver is None:
            return

        async def all_of_them() -> None:
            await _all(runner.aclose() for runner in self._runners)

        try:
            self._run(all_of_them(), "close")
        finally:
            driver, self._driver = self._driver, None
            driver.close()

    async def _one(self, index: int, action: Turn | str) -> tuple[Any, ...]:
        """One environment's observation, reward, two ends, info, and what belongs to an episode that it has left."""
        if self._over[index] and self.autoreset_mode == AutoresetMode.NEXT_STEP:
            return (*await self._fresh(index), None)
        result = await self._played(index, action)
        if (result[2] or result[3]) and self.autoreset_mode == AutoresetMode.SAME_STEP:
            observation, _, _, failed, info = await self._fresh(index)
            final = {"final_obs": result[0], "final_info": result[4]}
            return observation, result[1], result[2], result[3] or failed, info, final
        return (*result, None)

    async def _played(self, index: int, action: Turn | str) -> tuple[Any, ...]:
        try:
            return await self._runners[index].astep(action)
        except _FAILURES as error:
            return _failed(error)

    async def _fresh(self, index: int) -> tuple[Any, ...]:
        try:
            observation, info = await self._runners[index].areset()
        except _FAILURES as error:
            return _failed(error)
        return observation, 0.0, False, False, info

    def _run(self, work: Any, what: str) -> Any:
        if self._driver is None:
            work.close()
            raise ConfigError("this vector environment is closed: make another")
        return self._driver.run(work, timeout_s=self._timeout_s, what=f"{what} of {self.num_envs} environments")


async def _all(works: Iterable[Awaitable[T]]) -> list[T]:
    """All at once; the first failure is raised when all have ended, so that none is left running."""
    found = await asyncio.gather(*works, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if not isinstance(each, BaseException)]


def _failed(error: AgarError) -> tuple[Any, ...]:
    outcome = Outcome.ENV_ERROR if isinstance(error, EnvError) else Outcome.INFRA_ERROR
    return [], 0.0, False, True, {"failure": outcome, "failure_reason": str(error)}
