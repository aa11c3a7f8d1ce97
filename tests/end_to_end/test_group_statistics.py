"""From scripted episodes to the gradient on each token: groups of 4, 3, 4 and 1, failures, an attempt of three rows.

Episodes are real (gateway, ledger, scheduler, group stage, audit, micro-batches on two ranks); what the agents say and
get is scripted, and the right numbers are computed from the script alone.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from tests.end_to_end.scripted_groups import (
    ADVANTAGES,
    BONUS,
    CONSTANT,
    KEPT,
    SCRIPT,
    WEIGHTS,
    Key,
    against_the_others,
    centred,
    raw,
    rewards,
    tokens,
)

import agar
from agar.envs.rubric import Conversation, Criterion, Rubric
from agar.envs.tasks import GeneratedTasks, TaskCursor
from agar.ledger.config import RecordPolicy
from agar.ledger.families import family_for
from agar.ledger.toy import ToyEngine, write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig, TasksConfig
from agar.rollout.episode import EpisodeRunner
from agar.rollout.gateway.server import Gateway
from agar.rollout.grading import grading_of
from agar.rollout.scheduler import Scheduler, Stream
from agar.rollout.sources.live import LiveRollouts
from agar.trainer.algorithms.config import AlgorithmConfig, PolicyGradientConfig, RlooConfig
from agar.trainer.algorithms.losses import policy_loss
from agar.trainer.batching.plan import StepPlan, plan_step
from agar.trainer.batching.tensors import loss_inputs
from agar.types import Batch, Message, Sampling, TaskRow

pytest.importorskip("uvicorn")


class Paying(agar.Env):
    """One turn, which pays what the script says or fails."""

    def __init__(self, reward: Fraction | None) -> None:
        self.reward = reward

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "Go.", {}

    def step(self, action: agar.Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.reward is None:
            raise OSError("no more")
        return "Done.", float(self.reward), True, False, {}


class Talker:
    """Holds a conversation for each number, so that each makes a row, and then takes its turn."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = tokens

    async def play(self, env: Any, task: TaskRow, session: Any) -> None:
        await env.areset(seed=0, options={"task": task})
        for place, count in enumerate(self.tokens):
            turn = await session.chat([Message(role="user", content=f"Conversation {place}: say {count}")])
        await env.astep(turn)


def best(group: Sequence[Conversation]) -> list[float]:
    if group[0].task.key == "incomparable":
        raise ValueError("no way to compare them")
    return [float(told.reward == max(other.reward for other in group)) for told in group]


async def played(folder: Any) -> Batch:
    """The batch of the script, through everything that a run has between an engine and a trainer."""
    family = family_for(write_toy_model(folder))

    def say(prompt: Any) -> list[int]:
        count = int(re.findall(r"say (\d+)", family.tokenizer.decode(prompt))[-1])
        return [65] * (count - 1) + sorted(family.stop_ids)[:1]

    config = RolloutConfig(tasks_per_step=len(KEPT), group_size=4, attempt_retries=0)
    rubric = Rubric([Criterion(name="best", score=best, weight=float(BONUS), stage="group")])
    table = TasksConfig(env="Any-v0", kwargs={"rubric": rubric}, shuffle=False)
    tasks = GeneratedTasks(lambda index: TaskRow(key=list(SCRIPT)[index]), size=len(SCRIPT))
    stream = Stream(table, TaskCursor(tasks, seed=0, shuffle=False), grading_of(table))
    async with Gateway(engines={"main": ToyEngine(say)}, families={"main": family}) as gateway:

        async def play(attempt: Attempt) -> Trace:
            script = SCRIPT[attempt.task.key][attempt.index]
            runner = EpisodeRunner(
                gateway=gateway,
                agent=Talker(script.tokens),
                make_env=lambda name, kwargs: Paying(script.reward),
                config=config,
            )
            return await runner.play(attempt, Sampling(max_tokens=32))

        live = LiveRollouts(
            scheduler=Scheduler(streams=[stream], play=play, config=config, seed=0),
            boundaries=(),
            record=RecordPolicy(),
            audit="strict",
            families={"main": family},
            closely=len(SCRIPT) * config.group_size,
        )
        async with live.running():
            return await live.next_batch({"main": 0})


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return asyncio.run(played(tmp_path_factory.mktemp("toy")))


EVERY = get_args(get_args(AlgorithmConfig)[0])


@dataclass(frozen=True, slots=True)
class Token:
    """One trained position."""

    key: Key
    sample: int
    advantage: float
    weight: float
    gradient: float
    """Of the step's loss, by the token's log-prob."""


def step(batch: Batch, config: PolicyGradientConfig) -> tuple[StepPlan, list[Token]]:
    """Plan a step over two ranks, with little room in a micro-batch, and take the gradient of its loss."""
    import torch

    plan = plan_step(batch.samples, algorithm=config, tokens_per_microbatch=64, dp_size=2)
    found: list[Token] = []
    for microbatch in (each for rank in plan.microbatches for each in rank):
        logprobs = torch.tensor(microbatch.logprobs, requires_grad=True)
        loss, _ = policy_loss(loss_inputs(microbatch), logprobs, None, config)
        loss.backward()
        assert logprobs.grad is not None
        gradient = logprobs.grad.numpy()
        assert not gradient[~microbatch.loss_mask].any()
        for at in np.flatnonzero(microbatch.loss_mask):
            sample = microbatch.rows[microbatch.segment_ids[at]]
            trajectory = batch.samples[sample].trajectory  # task#ordinal/attempt
            key = (trajectory.partition("#")[0], int(trajectory.rpartition("/")[2]))
            numbers = (microbatch.advantages[at], microbatch.weights[at], gradient[at])
            found.append(Token(key, sample, *map(float, numbers)))
    return plan, found


def test_the_batch_is_what_the_script_says(batch):
    groups = Counter(sample.group.task for sample in batch.samples)
    assert groups == {"three rows": 6, "a failure": 3, "constant": 4, "one left": 1}
    assert {(s.group.task, s.reward) for s in batch.samples} == {(key[0], float(r)) for key, r in raw().items()}
    assert batch.metrics["rollout/dropped_groups/no_trainable_attempt"] == 1
    assert batch.metrics["rollout/failed_attempts/env_error"] == 4 + 4  # of the groups kept, and all incomparable ones
    shares = [sample.weight for sample in batch.samples if sample.trajectory.endswith("three rows#0/0")]
    assert shares == pytest.approx([2 / 9, 3 / 9, 4 / 9])


@pytest.mark.parametrize("reduction", WEIGHTS)
@pytest.mark.parametrize("algorithm", EVERY, ids=lambda config: config().type)
def test_every_token_has_the_advantage_weight_and_gradient_that_the_papers_give_it(batch, algorithm, reduction):
    config = algorithm(reduction=reduction, constant_tokens=CONSTANT)
    advantage, weight = ADVANTAGES[config.type](), WEIGHTS[reduction]
    plan, found = step(batch, config)
    assert Counter(token.key for token in found) == tokens()
    assert (plan.trajectories, plan.trained_tokens) == (len(tokens()), sum(tokens().values())) == (12, 45)
    assert len({len(rank) for rank in plan.microbatches}) == 1 < plan.microbatches_per_rank
    for token in found:
        right, share = float(advantage[token.key]), float(weight(token.key))
        assert token.advantage == pytest.approx(right, rel=1e-5, abs=1e-7), token
        assert token.weight == pytest.approx(share, rel=1e-6)
        assert token.gradient == pytest.approx(-share * right, rel=1e-5, abs=1e-8), token


def test_the_numbers_of_the_script_by_hand():
    by_hand = {
        "three rows": "19/8 -1/8 -9/8 -9/8",
        "a failure": "3/4 -1/2 -1/4",
        "constant": "0 0 0 0",
        "one left": "0",
    }
    assert {task: " ".join(str(centred()[key]) for key in group) for task, group in rewards().items()} == by_hand
    assert against_the_others()["three rows", 0] == Fraction(7, 2) - Fraction(1, 3)


def test_an_attempt_of_three_rows_weighs_as_much_as_one_of_a_single_row(batch):
    _, found = step(batch, RlooConfig(reduction="trajectory_mean"))
    share: Counter[Key] = Counter()
    for token in found:
        share[token.key] += token.weight
    assert share == pytest.approx(dict.fromkeys(tokens(), 1 / 12))
    assert len({token.sample for token in found if token.key == ("three rows", 0)}) == 3


PEER = {
    "grpo": [1.437634, -0.075665, -0.680984, -0.680984, 1.133892, -0.755928, -0.377964, 0.0],
    "dr_grpo": [2.375, -0.125, -1.125, -1.125, 0.75, -0.5, -0.25, 0.0],
    "rloo": [3.166667, -0.166667, -1.5, -1.5, 1.125, -0.75, -0.375, 0.0],
    "reinforce_plus_plus": [1.714613, -0.409228, -1.258764, -1.258764, 0.01554, -1.04638, -0.833996, -0.196844],
    "reinforce_plus_plus_baseline": [1.707155, -0.453134, -1.317249, -1.317249, 0.302967, -0.777177, -0.561148, None],
}
"""What the functions of verl 0.9.1 gave for the first groups of the script, without the one of a single attempt, whose
whole reward it takes as the advantage; None where it moves a group of equal rewards away from 0."""


@pytest.mark.parametrize("algorithm", [each for each in EVERY if each().type in PEER], ids=lambda config: config().type)
def test_a_peers_functions_give_the_same_advantages(batch, algorithm):
    compared = [sample for sample in batch.samples if sample.group.task != "one left"]
    _, found = step(Batch(samples=tuple(compared)), algorithm())
    values = {token.key: token.advantage for token in found}
    in_order = [values[key] for key in tokens() if key in values]
    for ours, theirs in zip(in_order, PEER[algorithm().type], strict=False):
        assert theirs is None or ours == pytest.approx(theirs, abs=2e-6)


@pytest.mark.parametrize("algorithm", EVERY, ids=lambda config: config().type)
def test_groups_that_cannot_be_compared_teach_nothing_under_a_baseline(batch, algorithm):
    _, found = step(batch, algorithm())
    silent = {token.key for token in found if token.gradient == 0}
    nothing = {key for key in tokens() if key[0] in {"constant", "one left"}}
    assert silent == (nothing if algorithm.needs_group else set())
