"""Settings of batch sources that need no engines."""

from typing import Any

from pydantic import Field

from agar.config import BaseConfig
from agar.rollout.config import EnvConfig


class DemonstratorConfig(BaseConfig):
    """One scripted agent that demonstrates."""

    policy: str = Field("gold", pattern=r"^(gold|[\w.]+:\w+)$")
    """`gold` plays the environment's own gold turns and takes `err`, the chance of a mistake at every turn. Else
    `module:attr` of a scripted policy, or of a function that makes one from `kwargs`."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of that function or class."""
    weight: float = Field(1.0, gt=0.0)
    """Share of the phase's episodes, relative to the phase's other agents."""


class PhaseConfig(BaseConfig):
    """A stretch of the training run with its own mixture of agents."""

    share: float = Field(1.0, gt=0.0)
    """Part of the run's steps, relative to the other phases."""
    agents: tuple[DemonstratorConfig, ...] = Field(min_length=1)
    """Who demonstrates."""


class DemonstrationsConfig(EnvConfig):
    """Transcripts of scripted agents, to imitate."""

    split: str = "train"
    """Which part of the environment's task set."""
    policy: str = "main"
    """The policy that imitates."""
    phases: tuple[PhaseConfig, ...] = Field(min_length=1)
    """In order; the last one goes on if the run does."""
    trajectories_per_step: int = Field(32, ge=1)
    """Transcripts in one batch."""
    distinct: int = Field(1024, ge=1)
    """Different transcripts in a phase; they are played once, then drawn again in another order each epoch."""
    concurrency: int = Field(8, ge=1)
    """Episodes played at once."""
    episode_timeout_s: float = Field(60.0, gt=0.0)
    """Wall clock of one demonstration."""
