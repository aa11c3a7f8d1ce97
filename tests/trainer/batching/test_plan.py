import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agar.errors import ShapeError
from agar.trainer.algorithms.config import CispoConfig, DrGrpoConfig, GrpoConfig, GspoConfig, MisConfig, RlooConfig
from agar.trainer.algorithms.losses import policy_loss, sft_loss
from agar.trainer.batching.plan import plan_step
from agar.trainer.batching.tensors import loss_inputs
from agar.types import GroupId, Outcome, Source

VOCABULARY, POSITIONS = 7, 24
layout = st.fixed_dictionaries(
    {"tokens_per_microbatch": st.integers(1, 40), "dp_size": st.integers(1, 4), "row_multiple": st.integers(1, 4)}
)


def flat(plan):
    return [microbatch for rank in plan.microbatches for microbatch in rank]


# --------------------------------------------------------------------------------------- what is packed, what not


@given(data=st.data(), shape=layout, loss=st.sampled_from(["policy", "sft"]))
def test_every_trainable_sample_is_in_one_segment_unchanged(make_batches, data, shape, loss):
    samples = data.draw(make_batches())
    plan = plan_step(samples, algorithm=GrpoConfig(), loss=loss, **shape)
    assert plan.dp_size == shape["dp_size"]
    assert {len(rank) for rank in plan.microbatches} == {plan.microbatches_per_rank}
    seen = []
    for micro in flat(plan):
        assert len(micro) <= shape["tokens_per_microbatch"] or len(micro.rows) == 1
        for segment, position in enumerate(micro.rows):
            begin, end = micro.cu_seqlens[segment], micro.cu_seqlens[segment + 1]
            assert (end - begin) % shape["row_multiple"] == 0
            assert (micro.segment_ids[begin:end] == segment).all()
            assert micro.position_ids[begin:end].tolist() == list(range(end - begin))
            if position == -1:
                assert micro.trained_tokens == 0
                continue
            seen.append(position)
            sample, stop = samples[position], begin + len(samples[position].token_ids) - 1
            assert micro.token_ids[begin:stop].tolist() == sample.token_ids[:-1].tolist()
            assert micro.targets[begin:stop].tolist() == sample.token_ids[1:].tolist()
            assert micro.loss_mask[begin:stop].tolist() == sample.loss_mask[1:].tolist()
            assert micro.logprobs[begin:stop].tolist() == sample.logprobs[1:].tolist()
            assert not micro.loss_mask[stop:end].any()
            assert micro.segment_tokens[segment] == sample.loss_mask[1:].sum()
            if "reference_logprobs" in sample.side:
                assert micro.reference_logprobs is not None
                assert micro.reference_logprobs[begin:stop].tolist() == sample.side["reference_logprobs"][1:].tolist()
        assert (micro.weights[~micro.loss_mask] == 0).all()
        assert (micro.weights[micro.loss_mask] > 0).all()
    kept = [i for i, s in enumerate(samples) if s.outcome.trainable and s.loss_mask[1:].any()]
    assert sorted(seen) == kept
    dropped = sum(value for name, value in plan.metrics.items() if name.startswith("trainer/dropped_samples_"))
    assert dropped == len(samples) - len(kept)
    assert plan.trained_tokens == sum(micro.trained_tokens for micro in flat(plan))
    assert len({(micro.reference_logprobs is None) for micro in flat(plan)}) <= 1
    if kept:
        assert sum(float(micro.weights.sum()) for micro in flat(plan)) == pytest.approx(1, abs=1e-5)


def test_metrics_by_hand(make_sample):
    samples = [
        make_sample("a", reward=1, mask=(0, 1, 1, 1)),
        make_sample("b", reward=0, mask=(1, 0, 1)),
        make_sample("c", reward=1, mask=(0, 1), group=GroupId(task="u", ordinal=0)),
        make_sample("d", reward=9, outcome=Outcome.ENV_ERROR),
        make_sample("e", reward=0, mask=(0, 0), group=GroupId(task="u", ordinal=0)),
    ]
    plan = plan_step(samples, algorithm=DrGrpoConfig(), tokens_per_microbatch=4, dp_size=2)
    assert plan.trajectories == 3
    assert plan.trained_tokens == 5
    expected = {
        "trainer/trajectories": 4,
        "trainer/failed_trajectories": 1,
        "trainer/groups": 2,
        "trainer/mixed_groups": 2,
        "trainer/reward_mean": 0.5,
        "trainer/rows": 3,
        "trainer/trained_tokens": 5,
        "trainer/advantage_abs_mean": 0.5,
        "trainer/microbatches_per_rank": 1,
        "trainer/filler_microbatches": 0,
        "trainer/packed_tokens": 6,
        "trainer/packing_efficiency": 0.75,
        "trainer/dropped_first_tokens": 1,
        "trainer/dropped_samples_env_error": 1,
        "trainer/dropped_samples_no_trained_token": 1,
    }
    assert {name: plan.metrics[name] for name in expected} == pytest.approx(expected)
    assert plan.metrics["trainer/imbalance"] == pytest.approx(4 / 3, rel=1e-3)


def test_fewer_rows_than_ranks_are_filled_up(make_sample):
    plan = plan_step([make_sample("a"), make_sample("b")], algorithm=GrpoConfig(), tokens_per_microbatch=99, dp_size=3)
    assert [rank[0].rows for rank in plan.microbatches] == [(0,), (1,), (-1,)]
    assert plan.metrics["trainer/filler_microbatches"] == 1


def test_a_row_above_the_budget_counts_as_one_full_microbatch(make_sample):
    plan = plan_step([make_sample(mask=(0, 1, 1, 1, 1))], algorithm=GrpoConfig(), tokens_per_microbatch=2)
    assert plan.metrics["trainer/packed_tokens"] == 4
    assert plan.metrics["trainer/packing_efficiency"] == 1


@pytest.mark.parametrize("outcomes", [[], [Outcome.INFRA_ERROR]])
def test_a_batch_without_anything_to_train_gives_no_microbatches(make_sample, outcomes):
    samples = [make_sample(outcome=outcome) for outcome in outcomes]
    plan = plan_step(samples, algorithm=GrpoConfig(), tokens_per_microbatch=8, dp_size=2)
    assert plan.microbatches == ((), ())
    assert plan.microbatches_per_rank == plan.trained_tokens == plan.trajectories == 0
    assert plan.metrics["trainer/reward_mean"] == 0


def test_what_a_policy_step_cannot_train_is_refused(make_sample):
    arguments = {"algorithm": GrpoConfig(), "tokens_per_microbatch": 8}
    with pytest.raises(ShapeError, match="trains one policy"):
        plan_step([make_sample("a"), make_sample("b", policy="q")], **arguments)
    shown = make_sample(source=[0, 1, 2])
    with pytest.raises(ShapeError, match="trains token 2, which no engine sampled"):
        plan_step([shown], **arguments)
    assert plan_step([shown], loss="sft", **arguments).trained_tokens == 2
    with pytest.raises(ShapeError, match="set kl_coef = 0"):
        plan_step([make_sample()], algorithm=GrpoConfig(kl_coef=0.1), tokens_per_microbatch=8)


# ---------------------------------------------------------- loss and gradient do not depend on how a batch is split


def model():
    """A toy linear model: logits from the last token and its position. Parameters in float64."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(rows, VOCABULARY, generator=generator, dtype=torch.float64).requires_grad_()
        for rows in (VOCABULARY, POSITIONS)
    ]


def predict(parameters, token_ids, position_ids, targets):
    """Log-prob of each target and the entropy of its distribution."""
    table, places = parameters
    logprobs = (table[torch.tensor(token_ids).long()] + places[torch.tensor(position_ids).long()]).log_softmax(-1)
    chosen = logprobs.gather(-1, torch.tensor(targets).long()[:, None])[:, 0]
    return chosen, -(logprobs.exp() * logprobs).sum(-1)


def planned_loss(plan, config):
    """Sum over ranks and micro-batches; a gradient for the whole; total sums."""
    parameters = model()
    total, sums = torch.zeros((), dtype=torch.float64), {}
    for micro in flat(plan):
        logprobs, entropies = predict(parameters, micro.token_ids, micro.position_ids, micro.targets)
        inputs = loss_inputs(micro)
        if plan.loss == "sft":
            loss, parts = sft_loss(inputs, logprobs, entropies)
        else:
            loss, parts = policy_loss(inputs, logprobs, entropies, config)
        total = total + loss
        for name, value in parts.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    gradients = torch.autograd.grad(total, parameters) if flat(plan) else [torch.zeros(())] * 2
    return total.item(), gradients, sums


def assert_same(left, right):
    assert left[0] == pytest.approx(right[0], abs=1e-6)
    for one, other in zip(left[1], right[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    assert left[2] == pytest.approx(right[2], abs=1e-5)


CONFIGS = [
    GrpoConfig(reduction="trajectory_mean"),
    GrpoConfig(kl_coef=0.1, entropy_coef=0.01, dual_clip=2.0),
    DrGrpoConfig(constant_tokens=50),
    GspoConfig(),
    CispoConfig(clip_high=0.1),
    RlooConfig(old_logprobs="trainer", correction=MisConfig(level="sequence", mode="clip", veto=0.05)),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.type}-{c.reduction}")
@settings(max_examples=25)
@given(data=st.data(), shape=layout)
def test_policy_loss_and_gradient_do_not_depend_on_the_split(make_batches, config, data, shape):
    samples = data.draw(make_batches(reference=True))
    whole = plan_step(samples, algorithm=config, tokens_per_microbatch=10_000, dp_size=1)
    split = plan_step(samples, algorithm=config, **shape)
    if whole.microbatches_per_rank:
        assert_same(planned_loss(split, config), planned_loss(whole, config))


@settings(max_examples=25)
@given(data=st.data(), shape=layout)
def test_sft_loss_and_gradient_do_not_depend_on_the_split(make_batches, data, shape):
    samples = data.draw(make_batches(source=Source.DEMONSTRATION))
    config = GrpoConfig(reduction=data.draw(st.sampled_from(["trajectory_mean", "token_mean", "constant"])))
    whole = plan_step(samples, algorithm=config, tokens_per_microbatch=10_000, loss="sft")
    split = plan_step(samples, algorithm=config, loss="sft", **shape)
    if whole.microbatches_per_rank:
        assert_same(planned_loss(split, config), planned_loss(whole, config))


@settings(max_examples=25)
@given(data=st.data(), shape=layout)
def test_policy_loss_and_gradient_equal_a_loop_over_trajectories_and_tokens(make_batches, data, shape):
    samples = data.draw(make_batches())
    config = GrpoConfig(reduction="trajectory_mean")
    parameters = model()
    by_trajectory = {}
    for sample in samples:
        if sample.outcome.trainable:
            by_trajectory.setdefault(sample.trajectory, []).append(sample)
    losses = []
    for siblings in by_trajectory.values():
        mine = siblings[0]
        rewards = {s.trajectory: s.reward for group in by_trajectory.values() for s in group if s.group == mine.group}
        spread = statistics.stdev(rewards.values()) if len(set(rewards.values())) > 1 else 0.0
        advantage = (mine.reward - statistics.mean(rewards.values())) / (spread + 1e-6) if spread else 0.0
        tokens = []
        for sample in siblings:
            for t in range(1, len(sample.token_ids)):
                if sample.loss_mask[t]:
                    ids = sample.token_ids
                    now = predict(parameters, ids[t - 1 : t], np.array([t - 1]), ids[t : t + 1])[0][0]
                    ratio = torch.exp(now - float(sample.logprobs[t]))
                    tokens.append(-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage))
        if tokens:
            losses.append(torch.stack(tokens).mean())
    plan = plan_step(samples, algorithm=config, **shape)
    assert plan.trajectories == len(losses)
    if losses:
        expected = torch.stack(losses).mean()
        loss, gradients, _ = planned_loss(plan, config)
        assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        for got, want in zip(gradients, torch.autograd.grad(expected, parameters), strict=True):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.type}-{c.reduction}")
@settings(max_examples=15)
@given(data=st.data())
def test_a_zigzag_split_of_rows_over_two_ranks_gives_the_same_loss_and_gradient(make_batches, config, data):
    samples = data.draw(make_batches(reference=True))
    plan = plan_step(samples, algorithm=config, tokens_per_microbatch=16, row_multiple=4)
    expected = planned_loss(plan, config)
    parameters, total, sums = model(), torch.zeros((), dtype=torch.float64), {}
    for micro in flat(plan):
        quarter = (micro.position_ids * 4) // np.repeat(np.diff(micro.cu_seqlens), np.diff(micro.cu_seqlens))
        parts = [np.flatnonzero((quarter == r) | (quarter == 3 - r)) for r in (0, 1)]
        recorded = ([], [])
        for replay in (False, True):
            for rank, positions in enumerate(parts):
                calls = iter(range(99))

                def reduce(partial, rank=rank, calls=calls, replay=replay, recorded=recorded):
                    if replay:
                        number = next(calls)
                        return recorded[0][number] + recorded[1][number]
                    recorded[rank].append(partial)
                    return partial

                logprobs, entropies = predict(
                    parameters, micro.token_ids[positions], micro.position_ids[positions], micro.targets[positions]
                )
                inputs = loss_inputs(micro, positions=positions)
                loss, parts_sums = policy_loss(inputs, logprobs, entropies, config, reduce=reduce)
                if replay:
                    total = total + loss
                    for name, value in parts_sums.items():
                        sums[name] = sums.get(name, 0.0) + value.item()
    if flat(plan):
        assert_same((total.item(), torch.autograd.grad(total, parameters), sums), expected)


def test_a_trajectory_split_into_samples_has_the_same_loss_as_in_one(make_sample):
    """Two samples that share no context dependence under the toy model: same tokens at the same positions."""
    whole = make_sample("a", tokens=[1, 2, 3, 4], mask=(0, 1, 0, 1), reward=1)
    halves = [
        make_sample("a", tokens=[1, 2, 3, 4], mask=mask, reward=1, weight=0.5, logprobs=whole.logprobs * np.array(mask))
        for mask in ((0, 1, 0, 0), (0, 0, 0, 1))
    ]
    other = make_sample("b", tokens=[1, 5, 5], reward=0)
    config = GrpoConfig(reduction="trajectory_mean")
    results = [
        planned_loss(plan_step([*samples, other], algorithm=config, tokens_per_microbatch=8), config)
        for samples in ([whole], halves)
    ]
    assert_same(results[0], results[1])
    assert math.isfinite(results[0][0])
