"""Everything that plays episodes: engines, gateway, agent, and the environments that they meet."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from agar.agents.build import build_agent
from agar.envs.graded import GradedEnv
from agar.envs.registry import make
from agar.envs.tasks import TaskStream
from agar.envs.tool_env import ToolEnv
from agar.envs.wrappers.base import awaitable
from agar.ledger.families import Family, family_for
from agar.ledger.trace import Trace
from agar.recipe.config import Recipe
from agar.recipe.together import enter_together
from agar.rollout.attempt import Attempt
from agar.rollout.config import EvaluationConfig
from agar.rollout.engines.pool import EnginePool
from agar.rollout.episode import EpisodeRunner
from agar.rollout.evaluate import Evaluation, Progress, evaluate
from agar.rollout.gateway.server import Gateway
from agar.rollout.grading import grading_of
from agar.rollout.retry import Play
from agar.rollout.scheduler import Stream
from agar.rollout.streams import cursor_of, tasks_of
from agar.sandbox.pools import SandboxPools
from agar.types import Metrics, TaskRow

_ENGINE_RESERVE_TOKENS = 6  # SGLang 0.5.23 refuses a prompt that leaves no more than so many of its context


@dataclass(frozen=True, slots=True, kw_only=True)
class Players:
    """What is up and running.

    Attributes:
        pools: the engines of each policy.
        families: renders and parses for each policy.
        gateway: what agents call.
        sandboxes: where environments lease theirs.
        runner: plays attempts.
        recipe: the settings.
    """

    pools: Mapping[str, EnginePool]
    families: Mapping[str, Family]
    gateway: Gateway
    sandboxes: SandboxPools
    runner: EpisodeRunner
    recipe: Recipe

    def play(self) -> Play:
        """Plays one attempt under the rollout's sampling."""
        sampling = self.recipe.rollout.sampling.build()

        async def play(attempt: Attempt) -> Trace:
            return await self.runner.play(attempt, sampling)

        return play

    def metrics(self) -> Metrics:
        """What gateway, sandboxes and engines have counted; engines of one policy among several by name."""
        found = {**self.gateway.metrics(), **self.sandboxes.metrics()}
        for name, pool in self.pools.items():
            prefix = "" if len(self.pools) == 1 else f"{name}/"
            found |= {f"{prefix}{key}": value for key, value in pool.metrics().items()}
        return found

    def streams(self) -> list[Stream]:
        """A cursor for each `[[tasks]]` table."""
        return [
            Stream(config, cursor_of(config, seed=self.recipe.run.seed), grading_of(config))
            for config in self.recipe.tasks
        ]

    async def evaluate(self, config: EvaluationConfig, progress: Progress | None = None) -> Evaluation:
        """Play one evaluation against what the engines serve now."""
        return await evaluate(
            config,
            tasks=first_tasks(config),
            play=self.runner.play,
            concurrency=self.recipe.rollout.concurrency,
            retries=self.recipe.rollout.attempt_retries,
            grade=grading_of(config),
            progress=progress,
        )


def first_tasks(config: EvaluationConfig) -> list[TaskRow]:
    """The first `config.tasks` tasks of the split; all of them where it holds fewer."""
    tasks = tasks_of(config)
    if isinstance(tasks, TaskStream):
        return [tasks.next() for _ in range(config.tasks)]
    return [tasks[index] for index in range(min(config.tasks, len(tasks)))]


def context_tokens(recipe: Recipe) -> int | None:
    """The longest prompt and reply: the engines' context, less what SGLang never gives away; None where none says.

    The context is as set, of the gateway or of the engines, or else the shortest among the models.
    """
    told = [recipe.gateway.context_tokens, recipe.engines.sglang.get("context_length")]
    known = [int(context) for context in told if context is not None]
    if not known:
        configs = [json.loads((policy.model / "config.json").read_text()) for policy in recipe.policies.values()]
        known = [config["max_position_embeddings"] for config in configs if "max_position_embeddings" in config]
    return max(min(known) - _ENGINE_RESERVE_TOKENS, 1) if known else None


def family_of(recipe: Recipe, policy: str) -> Family:
    """What renders and parses for a policy.

    Raises:
        ConfigError: its model has no tokenizer or no chat template, or they do not fit each other.
    """
    ledger = recipe.ledger
    return family_for(recipe.policies[policy].model, thinking=ledger.thinking, today=ledger.today)


@asynccontextmanager
async def playing(recipe: Recipe, *, logs: Path) -> AsyncIterator[Players]:
    """Start the engines of every policy, the gateway, and the agent; stop them all at the end.

    Raises:
        EngineError, DeadlineError: an engine did not come up; the message quotes its log.
        UnsupportedPlatformError: the machine lacks something, for instance a sandbox.
    """
    families = {name: family_of(recipe, name) for name in recipe.policies}  # refused before the start
    async with AsyncExitStack() as stack:
        pools = {
            name: EnginePool(
                recipe.engines, policy.model, run_dir=logs / name, first_index=position * recipe.engines.count
            )
            for position, (name, policy) in enumerate(recipe.policies.items())
        }
        await enter_together(stack, *pools.values())
        gateway = await stack.enter_async_context(
            Gateway(
                engines={name: pool.client() for name, pool in pools.items()},
                families=families,
                record=recipe.ledger.record,
                config=recipe.gateway.model_copy(update={"context_tokens": context_tokens(recipe)}),
            )
        )
        sandboxes = await stack.enter_async_context(SandboxPools(warm=recipe.sandboxes.warm))
        agent = build_agent(recipe.agent)
        await stack.enter_async_context(agent)
        runner = EpisodeRunner(
            gateway=gateway, agent=agent, make_env=partial(make_env, sandboxes), config=recipe.rollout
        )
        yield Players(
            pools=pools, families=families, gateway=gateway, sandboxes=sandboxes, runner=runner, recipe=recipe
        )


def make_env(sandboxes: SandboxPools, name: str, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """An environment that leases its sandboxes, where it can be awaited."""
    env = make(name, **kwargs)
    inside = _with_tools(env)
    if inside is not None:
        inside.sandboxes = sandboxes
    return env


def _with_tools(env: gymnasium.Env[Any, Any]) -> ToolEnv | None:
    """The environment whose sandboxes are used on this loop, inside of wrappers and rubrics; None where none is."""
    if awaitable(env) is None:  # one that is driven in a thread has another loop
        return None
    inside = env.unwrapped
    if isinstance(inside, GradedEnv):
        return _with_tools(inside.env)
    return inside if isinstance(inside, ToolEnv) else None
