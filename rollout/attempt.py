"""One attempt at one task, before it is played."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agar.types import GroupId, TaskRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What an episode starts from.

    Attributes:
        group: the group that it belongs to.
        index: its place in the group, from 0.
        task: the task.
        env: environment id.
        env_kwargs: constructor arguments of the environment.
        policy: the policy that plays.
        retry: how often this attempt was played before and failed for reasons that are not the agent's.
    """

    group: GroupId
    index: int
    task: TaskRow
    env: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "main"
    retry: int = 0

    @property
    def trajectory(self) -> str:
        """Id of the trajectory, unique in a run."""
        again = f"r{self.retry}" if self.retry else ""
        return f"{self.group.task}#{self.group.ordinal}/{self.index}{again}"
