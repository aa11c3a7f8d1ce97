"""The settings of a whole run, and the checks that cross rooms."""

import os
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import Field

from agar.agents.config import AgentConfig, ChatConfig, HarnessConfig
from agar.config import BaseConfig
from agar.errors import ConfigError
from agar.ledger.canonicalisers import canonicaliser_of
from agar.ledger.config import AuditMode, RecordPolicy
from agar.recipe.checks import check_env, check_model, check_tasks
from agar.rollout.config import EvaluationConfig, RolloutConfig, TasksConfig
from agar.rollout.engines.config import EnginesConfig
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.sources.config import DemonstrationsConfig
from agar.sandbox.config import SandboxesConfig
from agar.trainer.config import TrainerConfig


class LedgerConfig(BaseConfig):
    """How model calls are recorded and batches audited."""

    record: RecordPolicy = RecordPolicy()
    """What counts as the same history, and what is kept out of training."""
    thinking: bool | None = None
    """The switch for reasoning in the models' chat templates; None leaves it to them."""
    today: date = Field(default_factory=lambda: date.today())
    """The date that chat templates may write; that of the run's start, for its resumes too."""
    audit: AuditMode = "strict"
    """What a broken invariant does."""
    closely: int = Field(4, ge=0)
    """Trajectories of each batch that are rendered again, and written and read again, for the audit."""
    rescored_rows: int = Field(1, ge=0)
    """Rows of each batch that the trainer scores before it trains, to compare its log-probs with the engine's."""
    parity_nats: float | None = Field(0.1, gt=0.0)
    """Largest mean difference of those log-probs that passes the audit; None only reports it."""


class RunConfig(BaseConfig):
    """Where a run lives and how long it is."""

    name: str = Field("run", min_length=1, pattern=r"^[A-Za-z0-9._-]+$")
    """Name of the run; part of its folder's name."""
    dir: Path = Path("runs")
    """Folder that holds the run folders."""
    seed: int = Field(1, ge=0)
    """Seed of task order and of everything else that draws."""
    steps: int = Field(100, ge=0)
    """Optimiser steps in all."""
    checkpoint_every_steps: int = Field(20, ge=0)
    """Checkpoint each so many steps; 0: only at the end and when stopped."""
    keep_checkpoints: int = Field(2, ge=1)
    """How many of the newest checkpoints to keep."""
    keep_traces: bool = True
    """Write the traces of all episodes that are trained on or evaluated to the run folder."""
    shuffle_rewards: bool = False
    """Permute rewards within each group: a control that must not learn."""


class Recipe(BaseConfig):
    """Everything that a run needs, by room."""

    run: RunConfig = RunConfig()
    """Where it lives and how long it is."""
    policies: dict[str, TrainerConfig] = Field(min_length=1)
    """The policies that are trained, by name; a single-agent run has one, `main`."""
    engines: EnginesConfig = EnginesConfig()
    """The inference engines of each policy."""
    gateway: GatewayConfig = GatewayConfig()
    """Where agents call; its context length is the models' own unless set."""
    agent: AgentConfig = ChatConfig()
    """Who plays."""
    rollout: RolloutConfig = RolloutConfig()
    """How live rollouts make batches."""
    sandboxes: SandboxesConfig = SandboxesConfig()
    """How many sandboxes of live rollouts and evaluations are kept started."""
    tasks: tuple[TasksConfig, ...] = ()
    """What is trained on."""
    evaluate: tuple[EvaluationConfig, ...] = ()
    """What is measured."""
    ledger: LedgerConfig = LedgerConfig()
    """How model calls are recorded and audited."""
    demonstrations: DemonstrationsConfig | None = None
    """What supervised fine-tuning imitates."""

    def check(self, command: Literal["train", "sft", "rollout", "eval"]) -> None:
        """Find what no single field can know, before anything starts.

        Args:
            command: what is about to be done with the recipe.

        Raises:
            ConfigError: names the field to change.
        """
        for name, policy in self.policies.items():
            check_model(f"policies.{name}", policy, trained=command in ("train", "sft"))
        self._check_engines()
        for index, stream in enumerate(self.tasks):
            self._check_stream(f"tasks.{index}", stream)
        for index, evaluation in enumerate(self.evaluate):
            self._check_stream(f"evaluate.{index}", evaluation)
        self._check_names()
        if isinstance(self.agent, HarnessConfig):
            self._check_harness(self.agent)
        canonicaliser_of(self.ledger.record.canonicalisers)
        match command:
            case "train":
                self._check_tasks()
                self._check_fed({stream.policy for stream in self.tasks}, "no [[tasks]] table")
                self._check_loss(command, "policy")
                self._check_groups()
                self._check_logprobs()
            case "sft":
                self._check_fed({self._check_demonstrations()}, "not the [demonstrations] table")
                self._check_loss(command, "sft")
                self._check_imitation()
            case "rollout":
                self._check_tasks()
            case "eval" if not self.evaluate:
                raise ConfigError('the recipe has no [[evaluate]] table: add one with env = "…"')

    def _check_engines(self) -> None:
        if self.engines.urls and len(self.policies) > 1:
            raise ConfigError(
                f"engines.urls = {list(self.engines.urls)} would be the engines of each of the policies "
                f"{sorted(self.policies)}, which would overwrite each other's weights: leave engines.urls out, so that "
                "every policy gets engines of its own"
            )

    def _check_stream(self, place: str, stream: TasksConfig | EvaluationConfig | DemonstrationsConfig) -> None:
        if stream.policy not in self.policies:
            raise ConfigError(
                f"{place}.policy = {stream.policy!r} is not among the policies {sorted(self.policies)}: "
                "name one of them, or add its [policies.…] table"
            )
        check_env(place, stream.env, stream.make_kwargs)
        check_tasks(place, stream)

    def _check_harness(self, agent: HarnessConfig) -> None:
        if agent.timeout_s >= self.rollout.episode_timeout_s:
            raise ConfigError(
                f"agent.timeout_s = {agent.timeout_s:g} is not below rollout.episode_timeout_s = "
                f"{self.rollout.episode_timeout_s:g}, which would cut the program off without its output: lower the "
                "first or raise the second"
            )
        for place, path in agent.sandbox.mounts.items() if agent.isolation == "sandbox" else ():
            if not os.path.exists(path):
                raise ConfigError(f"agent.sandbox.mounts: there is no {path} to show as {place}: correct the path")

    def _check_names(self) -> None:
        first: dict[str, int] = {}
        for index, evaluation in enumerate(self.evaluate):
            before = first.setdefault(evaluation.title, index)
            if before != index:
                raise ConfigError(
                    f"evaluate.{before} and evaluate.{index} are both called {evaluation.title!r}, so their numbers "
                    f"would be mixed up: set evaluate.{index}.name"
                )

    def _check_tasks(self) -> None:
        if not self.tasks:
            raise ConfigError('the recipe has no [[tasks]] table to play: add one with env = "…"')

    def _check_demonstrations(self) -> str:
        if self.demonstrations is None:
            raise ConfigError("the recipe has no [demonstrations] table, which `agar sft` imitates: add one")
        self._check_stream("demonstrations", self.demonstrations)
        return self.demonstrations.policy

    def _check_fed(self, fed: set[str], nothing: str) -> None:
        for name in self.policies:
            if name not in fed:
                raise ConfigError(
                    f"policies.{name} would be started and never trained: {nothing} has policy = {name!r}; add that, "
                    f"or remove [policies.{name}]"
                )

    def _check_imitation(self) -> None:
        for name, policy in self.policies.items():
            if policy.temperature != 1:
                raise ConfigError(
                    f"policies.{name}.temperature = {policy.temperature:g}: demonstrations were not sampled at any, "
                    "and the model would learn them at that one only: set it to 1"
                )

    def _check_loss(self, command: str, wanted: str) -> None:
        for name, policy in self.policies.items():
            if policy.loss != wanted:
                raise ConfigError(
                    f'policies.{name}.loss = "{policy.loss}", but `agar {command}` trains with "{wanted}": set it so'
                )

    def _check_groups(self) -> None:
        for name, policy in self.policies.items():
            if policy.algorithm.needs_group and self.rollout.group_size < 2:
                raise ConfigError(
                    f"rollout.group_size = {self.rollout.group_size}: {policy.algorithm.type} "
                    f"(policies.{name}.algorithm) compares the attempts of a group, so it needs at least 2"
                )

    def _check_logprobs(self) -> None:
        """The trainer's log-probs must mean what the engines' do, and every one that it needs must be there."""
        sampled_at = self.rollout.sampling.temperature
        if self.ledger.record.sampler == "neutral" and not self.rollout.sampling.build().neutral:
            raise ConfigError(
                "rollout.sampling draws from a part of the vocabulary (top_p, top_k or a temperature of 0): log-probs "
                'are not the model\'s own then and, with ledger.record.sampler = "neutral", nothing would be trained; '
                'sample neutrally, or set it to "recorded"'
            )
        for name, policy in self.policies.items():
            if policy.temperature != sampled_at:
                raise ConfigError(
                    f"policies.{name}.temperature = {policy.temperature:g}, but rollout.sampling.temperature = "
                    f"{sampled_at:g}: the trainer must score tokens at the temperature that they are sampled at; set "
                    "both to the same, above 0"
                )
            algorithm, staleness = policy.algorithm, self.rollout.max_staleness
            if staleness and algorithm.old_logprobs == "trainer" and algorithm.correction is None:
                raise ConfigError(
                    f'policies.{name}.algorithm.old_logprobs = "trainer" with rollout.max_staleness = {staleness} '
                    "would train tokens of older weights as if they were the present ones': set "
                    f"policies.{name}.algorithm.correction, or max_staleness to 0"
                )
            if policy.algorithm.kl_coef > 0:
                raise ConfigError(
                    f"policies.{name}.algorithm.kl_coef = {policy.algorithm.kl_coef:g}: nothing in a recipe computes a "
                    "reference policy's log-probs yet; set it to 0"
                )
