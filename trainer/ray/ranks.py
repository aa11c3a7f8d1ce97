"""The ranks, seen from the driver: every request goes to all of them, and every wait has a deadline and a name."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agar.errors import AgarError, DeadlineError, TrainerError
from agar.trainer.config import TrainerConfig
from agar.trainer.ray.actor import RankActor
from agar.trainer.ray.cluster import RayCluster

logger = logging.getLogger(__name__)

_GRACE_S = 2.0
"""How long the other ranks may add what they know once one has failed."""


class Ranks:
    """All ranks of one policy.

    A request that fails on one rank leaves the others inside a collective, so the first failure ends them all; later
    requests repeat its reason.
    """

    def __init__(self, config: TrainerConfig, *, policy: str) -> None:
        self.config = config
        self.policy = policy
        self._cluster = RayCluster(config.placement, config.parallel)
        self._group: Any = None
        self._actors: list[Any] = []
        self._broken: str | None = None
        self.dp_index: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self._actors)

    async def open(self) -> None:
        """Start the cluster where there is none, the actors, the process groups and the models."""
        await self._cluster.open()
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        placement, deadline_s = self.config.placement, self.config.timeouts.start_s
        self._group = await self._cluster.place(deadline_s)
        settings = self.config.model_dump_json()
        actor = ray.remote(RankActor)
        for rank in range(self.config.parallel.world_size):
            options = actor.options(
                num_cpus=placement.cpus_per_rank,
                num_gpus=placement.gpus_per_rank,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=rank),
            )
            self._actors.append(options.remote(settings, rank))
        first = self._actors[:1]
        (host,) = await self._ask("give its address", [a.address.remote() for a in first], deadline_s)
        (port,) = await self._ask("listen", [a.listen.remote(host) for a in first], deadline_s)
        await self.all(lambda a, _: a.start.remote(host, port), what="start", deadline_s=deadline_s)
        self.dp_index = tuple(
            await self.all(lambda a, _: a.coordinates.remote(), what="give its coordinates", deadline_s=deadline_s)
        )

    async def all(self, request: Callable[[Any, int], Any], *, what: str, deadline_s: float) -> list[Any]:
        """Send a request to every rank and wait for all answers.

        Args:
            request: makes the call, given the actor and its rank.
            what: what the ranks are doing, for messages: "take step 7".
            deadline_s: how long all of them may take together.

        Returns:
            Answers in rank order.

        Raises:
            TrainerError: a rank failed or died, now or earlier; says which and why.
            DeadlineError: not every rank answered in time; says which.
        """
        if self._broken is not None:
            raise TrainerError(f"the trainer of {self.policy!r} has failed before: {self._broken}; load a checkpoint")
        if not self._actors:
            raise TrainerError(
                f"the trainer of {self.policy!r} was asked to {what}, but it is not open: use it inside of `async with`"
            )
        return await self._ask(what, [request(actor, rank) for rank, actor in enumerate(self._actors)], deadline_s)

    async def _ask(self, what: str, refs: Sequence[Any], deadline_s: float) -> list[Any]:
        tasks = [asyncio.ensure_future(_answer(ref)) for ref in refs]
        try:
            done, pending = await asyncio.wait(tasks, timeout=deadline_s, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.exception() is not None for task in done):
                # A rank that dies fails its siblings' collectives: give its own news time to arrive.
                await asyncio.wait(pending, timeout=_GRACE_S) if pending else None
                raise self._fail(what, {rank: e for rank, task in enumerate(tasks) if (e := _error(task)) is not None})
            if pending:
                late = [rank for rank, task in enumerate(tasks) if task in pending]
                self._broken = f"ranks {late} did not {what} in {deadline_s:g} s"
                self._kill()
                raise DeadlineError(f"{self._broken}: raise policies.{self.policy}.timeouts or look at them")
            return [task.result() for task in tasks]
        finally:
            for task in tasks:
                task.cancel()

    def _fail(self, what: str, errors: Mapping[int, BaseException]) -> BaseException:
        import ray

        dead = [rank for rank, error in errors.items() if isinstance(error, ray.exceptions.RayActorError)]
        rank = min(dead or errors)
        error = errors[rank]
        cause = _cause(error)
        self._broken = f"rank {rank} could not {what}: {_reason(cause)}"
        self._kill()
        if isinstance(cause, AgarError):
            return cause
        failure = TrainerError(f"{self._broken} (policy {self.policy!r})")
        failure.__cause__ = error
        return failure

    def _kill(self) -> None:
        actors, self._actors = self._actors, []
        if actors:
            import ray

            for actor in actors:
                ray.kill(actor)

    async def close(self) -> None:
        """End the ranks and, where it was started here, the cluster; safe to call twice."""
        group, self._group = self._group, None
        if group is not None:
            import ray
            from ray.util.placement_group import remove_placement_group

            if ray.is_initialized():
                self._kill()
                remove_placement_group(group)
        await self._cluster.close()


def _error(task: asyncio.Task[Any]) -> BaseException | None:
    return task.exception() if task.done() else None


async def _answer(ref: Any) -> Any:
    return await ref


def _cause(error: BaseException) -> BaseException:
    """The exception that a rank raised, freed of Ray's envelope."""
    inner = getattr(error, "cause", None)
    return inner if isinstance(inner, BaseException) else error


def _reason(cause: BaseException) -> str:
    """Why a rank failed, on one line."""
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {'; '.join(lines)[:600]}"
