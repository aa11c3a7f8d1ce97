"""Settings of rollouts: how many episodes, under which limits, how stale, on which tasks."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from agar.config import BaseConfig
from agar.envs.isolation.config import ProcessLimits
from agar.envs.tasks.columns import TaskColumns
from agar.types import Sampling


class SamplingConfig(BaseConfig):
    """How replies are sampled. The defaults are the neutral sampler, which training wants."""

    temperature: float = Field(1.0, ge=0.0, le=10.0)
    """Softmax temperature; 0 is greedy."""
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    """Nucleus mass; below 1 the engine's log-probs are renormalised."""
    top_k: int = Field(-1, ge=-1)
    """Keep the k likeliest tokens; -1 keeps all."""
    max_tokens: int = Field(256, ge=1)
    """Longest reply of one turn, in tokens."""

    def build(self) -> Sampling:
        """The value object that engines take."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, max_tokens=self.max_tokens)


class EnvConfig(BaseConfig):
    """Which environment is played, how it is made, and where it runs."""

    env: str = Field(min_length=1)
    """Environment id, for instance `Hunt-v0`, or `module:Id-v0` to import a module first."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Passed to the environment's constructor."""
    isolation: Literal["inline", "process"] | None = None
    """`process` runs every episode's environment in a process of its own; None leaves it as it was registered."""
    limits: ProcessLimits | None = None
    """What that process may use."""

    @property
    def make_kwargs(self) -> dict[str, Any]:
        """What `agar.make` takes beside the id."""
        where = {} if self.isolation is None else {"isolation": self.isolation}
        bounds = {} if self.limits is None else {"limits": self.limits}
        return {**self.kwargs, **where, **bounds}


class TasksConfig(EnvConfig):
    """One stream of tasks."""

    split: str = "train"
    """Which part of the environment's task set."""
    path: str | None = Field(None, min_length=1)
    """Where the tasks are, instead of in the environment's own set: `FILE.jsonl`, `FILE.parquet`, a folder of task
    folders in Harbor's format, `hf:DATASET` or `module:attr`, perhaps with a slice: `FILE.jsonl@[:1000]`."""
    columns: TaskColumns = TaskColumns()
    """Which column of `path` is what."""
    curriculum: str | None = Field(None, pattern=r"^[\w.]+:\w+$")
    """`module:attr` of a class or function without arguments that gives an `agar.envs.tasks.Curriculum`."""
    policy: str = "main"
    """The policy that plays and is trained."""
    weight: float = Field(1.0, gt=0.0)
    """Share of this stream among several."""
    shuffle: bool = True
    """Draw tasks in an order shuffled by the run's seed, anew each epoch."""


class EvaluationConfig(EnvConfig):
    """One evaluation: an environment's held-out tasks under fixed sampling."""

    name: str | None = Field(None, pattern=r"^[A-Za-z0-9._-]+$")
    """What its numbers and traces are called; None takes the environment's id."""
    split: str = "heldout"
    """Which part of the environment's task set."""
    path: str | None = Field(None, min_length=1)
    """Where the tasks are, instead of in the environment's own set; as in `[[tasks]]`."""
    columns: TaskColumns = TaskColumns()
    """Which column of `path` is what."""
    policy: str = "main"
    """The policy that plays."""
    tasks: int = Field(128, ge=1)
    """The first so many tasks of the split, the same ones each time."""
    attempts: int = Field(1, ge=1)
    """Attempts at each task; pass@k is reported for this k and for the powers of two below it."""
    sampling: SamplingConfig = SamplingConfig()
    """How replies are sampled."""
    every_steps: int = Field(0, ge=0)
    """Evaluate each so many training steps; 0: only before and after training."""

    @property
    def title(self) -> str:
        """Its name, or else the environment's id."""
        return self.name or self.env


class RolloutConfig(BaseConfig):
    """How live rollouts make batches."""

    tasks_per_step: int = Field(16, ge=1)
    """Groups in one batch."""
    group_size: int = Field(8, ge=1)
    """Attempts at each task."""
    max_staleness: int = Field(0, ge=0)
    """Oldest allowed trained token, in policy versions behind the one being trained; 0 is on-policy."""
    concurrency: int = Field(64, ge=1)
    """Episodes in flight."""
    sampling: SamplingConfig = SamplingConfig()
    """How replies are sampled."""
    episode_timeout_s: float = Field(600.0, gt=0)
    """Wall clock of one episode; past it the episode is truncated."""
    batch_timeout_s: float = Field(3600.0, gt=0)
    """Longest wait for a batch without any episode finishing."""
    max_turns: int | None = Field(None, ge=1)
    """Model calls in one episode; None leaves it to the environment."""
    max_episode_tokens: int | None = Field(None, ge=1)
    """Tokens sampled in one episode; past it the episode is truncated. The context has `gateway.context_tokens`."""
    attempt_retries: int = Field(2, ge=0)
    """How often an attempt is played again after a failure that is not the agent's."""
    keep_groups: Literal["all", "mixed"] = "all"
    """`mixed` drops groups that carry no signal, as all their rewards are equal or one attempt is left, and replaces
    them."""
    max_replacements: int = Field(256, ge=0)
    """Groups replaced for one batch before it is taken as it is (of those that `mixed` drops), or the run is stopped
    (of those whose attempts all failed); either kind is counted by itself."""

    @model_validator(mode="after")
    def _can_be_mixed(self) -> Self:
        if self.keep_groups == "mixed" and self.group_size < 2:
            raise ValueError(
                'keep_groups = "mixed" compares the attempts of a group, but group_size is 1, so every group would be '
                "dropped: set group_size to 2 or more, or leave keep_groups out"
            )
        return self
