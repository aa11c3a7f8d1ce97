import math

import pytest
import torch

from agar.errors import ShapeError
from agar.trainer.algorithms.config import (
    CispoConfig,
    DrGrpoConfig,
    GrpoConfig,
    GspoConfig,
    IcepopConfig,
    MisConfig,
    TisConfig,
)
from agar.trainer.algorithms.corrections import correction_weights
from agar.trainer.algorithms.inputs import LossInputs
from agar.trainer.algorithms.kl import kl_estimate
from agar.trainer.algorithms.losses import (
    cispo_surrogate,
    clipped_surrogate,
    policy_loss,
    sft_loss,
)

# Two rows packed: 0 1 2 3 | 4 5 6; positions 0 and 4 are prompt, 3 is a masked tool token, 6 is padding.
MASK = [False, True, True, False, False, True, False]
SEGMENTS = [0, 0, 0, 0, 1, 1, 1]
WEIGHTS = [0.0, 0.25, 0.25, 0.0, 0.0, 0.5, 0.0]
ADVANTAGES = [0.0, 1.0, -2.0, 0.0, 0.0, 0.5, 0.0]
NOW = [-9.0, -0.2, -1.5, -7.0, -5.0, -0.7, -99.0]
OLD = [0.0, -0.9, -1.1, 0.0, 0.0, -0.6, 0.0]
TRAINED = [i for i, on in enumerate(MASK) if on]


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def inputs(**changes):
    fields = {
        "loss_mask": torch.tensor(MASK),
        "weights": double(WEIGHTS),
        "advantages": double(ADVANTAGES),
        "engine_logprobs": double(OLD),
        "segment_ids": torch.tensor(SEGMENTS),
        "segment_tokens": double([2, 1]),
    }
    return LossInputs(**{**fields, **changes})


def now():
    return double(NOW).requires_grad_()


def loss_and_gradient(config, *, entropies=None, **changes):
    logprobs = now()
    loss, sums = policy_loss(inputs(**changes), logprobs, entropies, config)
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert all(not value.requires_grad and value.ndim == 0 for value in sums.values())
    assert sums["loss"].item() == pytest.approx(loss.item())
    return loss.item(), gradient.tolist(), {name: value.item() for name, value in sums.items()}


# ------------------------------------------------------------------------------------------------- surrogates


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 2.0, -2.56, True),  # capped at 1.28
        (0.5, 2.0, -1.0, False),  # a good token that became rarer keeps its gradient
        (0.5, -2.0, 1.6, True),  # a bad one stops at 0.8
        (1.5, -2.0, 3.0, False),
        (1.25, 2.0, -2.5, False),  # between 1.2 and 1.28: clip-higher lets it pass
    ],
)
def test_clipped_surrogate_by_hand(ratio, advantage, expected, clipped):
    loss, flags = clipped_surrogate(double([ratio]), double([advantage]), clip_low=0.2, clip_high=0.28)
    assert loss.item() == pytest.approx(expected)
    assert flags["clipped_sum"].tolist() == [clipped]


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "capped"),
    [(10.0, -2.0, 6.0, True), (2.0, -2.0, 4.0, False), (0.1, -2.0, 1.6, False), (10.0, 2.0, -2.4, False)],
)
def test_dual_clip_bounds_the_loss_of_bad_tokens(ratio, advantage, expected, capped):
    loss, flags = clipped_surrogate(double([ratio]), double([advantage]), clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    assert loss.item() == pytest.approx(expected)
    assert flags["dual_clipped_sum"].tolist() == [capped]


def test_clipped_surrogate_gradient_agrees_with_finite_differences():
    advantages = double([1, 1, 1, -1, -1, -1, -1])
    gap = double([-0.5, 0.1, 0.5, -0.5, 0.1, 0.5, 2.0]).requires_grad_()

    def loss(x):
        return clipped_surrogate(x.exp(), advantages, clip_low=0.2, clip_high=0.28, dual_clip=3.0)[0]

    assert torch.autograd.gradcheck(loss, (gap,))
    (gradient,) = torch.autograd.grad(loss(gap).sum(), gap)
    assert (gradient == 0).tolist() == [False, False, True, True, False, False, True]


def test_cispo_keeps_a_gradient_where_the_clip_binds():
    logprobs = double([-1.0, -2.0]).requires_grad_()
    loss, flags = cispo_surrogate(
        double([7.0, 0.5]).requires_grad_(), logprobs, double([2.0, -1.0]), clip_low=1.0, clip_high=4.0
    )
    assert loss.tolist() == [10.0, -1.0]  # -5 * 2 * -1 and -0.5 * -1 * -2
    assert torch.autograd.grad(loss.sum(), logprobs)[0].tolist() == [-10.0, 0.5]
    assert flags["clipped_sum"].tolist() == [True, False]


# ------------------------------------------------------------------------------------------------ policy loss


def test_policy_loss_equals_a_loop_over_tokens():
    config = GrpoConfig()
    expected = 0.0
    for t in TRAINED:
        ratio = math.exp(NOW[t] - OLD[t])
        clipped = min(max(ratio, 0.8), 1.28)
        expected += WEIGHTS[t] * max(-ratio * ADVANTAGES[t], -clipped * ADVANTAGES[t])
    loss, _, sums = loss_and_gradient(config)
    assert loss == pytest.approx(expected)
    assert sums["tokens"] == 3
    assert sums["ratio_sum"] == pytest.approx(sum(math.exp(NOW[t] - OLD[t]) for t in TRAINED))
    assert sums["clipped_sum"] == 2  # 2.01 with A > 0; 0.67 with A < 0
    assert sums["engine_gap_sum"] == pytest.approx(0.7 + 0.4 + 0.1)
    kl = sum(math.exp(NOW[t] - OLD[t]) - 1 - (NOW[t] - OLD[t]) for t in TRAINED)
    assert sums["engine_kl_sum"] == pytest.approx(kl)


def test_on_policy_gradient_is_plain_reinforce():
    for config in (GrpoConfig(), DrGrpoConfig(), CispoConfig(), GspoConfig()):
        loss, gradient, sums = loss_and_gradient(config, engine_logprobs=double(NOW))
        assert gradient == pytest.approx([-w * a for w, a in zip(WEIGHTS, ADVANTAGES, strict=True)])
        assert sums["clipped_sum"] == 0
        assert sums["engine_kl_sum"] == 0
    assert loss == pytest.approx(-sum(w * a for w, a in zip(WEIGHTS, ADVANTAGES, strict=True)))


def test_gspo_uses_the_geometric_mean_ratio_of_each_row():
    config = GspoConfig(clip_low=0.2, clip_high=0.2)
    first = math.exp(((NOW[1] - OLD[1]) + (NOW[2] - OLD[2])) / 2)  # e^0.15, inside the clip
    second = math.exp(NOW[5] - OLD[5])
    expected = -(0.25 * first * 1.0 + 0.25 * max(first * -2.0, min(first, 1.2) * -2.0) + 0.5 * second * 0.5)
    loss, _, sums = loss_and_gradient(config)
    assert loss == pytest.approx(expected)
    assert sums["ratio_sum"] == pytest.approx(2 * first + second)


@pytest.mark.parametrize("clip", [0.01, 0.1, 0.5])
def test_gspo_gradient_is_that_of_the_plain_sequence_ratio(clip):
    advantages = [1.5 if s == 0 else -0.5 for s in SEGMENTS]
    config = GspoConfig(clip_low=clip, clip_high=clip)
    _, gradient, _ = loss_and_gradient(config, advantages=double(advantages))
    logprobs = now()
    total = double(0.0)
    for tokens, advantage, share in (([1, 2], 1.5, 0.5), ([5], -0.5, 0.5)):
        ratio = torch.stack([logprobs[t] - OLD[t] for t in tokens]).mean().exp()
        total = total - share * torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    (expected,) = torch.autograd.grad(total, logprobs)
    assert gradient == pytest.approx(expected.tolist())


def test_gspo_over_split_rows_equals_whole_rows():
    config = GspoConfig(old_logprobs="trainer", correction=MisConfig(level="geometric", mode="clip", veto=1e-3))
    trainer = double([x - 0.05 * i for i, x in enumerate(OLD)])
    loss, gradient, _ = loss_and_gradient(config, old_logprobs=trainer)
    parts = [[0, 1, 6, 4], [2, 3, 5]]
    partial = {0: [], 1: []}

    def piece(positions):
        return inputs(
            **{
                name: getattr(inputs(old_logprobs=trainer), name)[positions]
                for name in ("loss_mask", "weights", "advantages", "engine_logprobs", "segment_ids", "old_logprobs")
            }
        )

    for rank, positions in enumerate(parts):
        policy_loss(
            piece(positions), double(NOW)[positions], None, config, reduce=lambda x, r=rank: partial[r].append(x) or x
        )
    # Later sums depend on earlier ones in no way here, so one recording pass is enough.
    total, gradients = 0.0, [0.0] * len(NOW)
    for positions in parts:
        queue = [a + b for a, b in zip(partial[0], partial[1], strict=True)]
        logprobs = now()
        part, _ = policy_loss(piece(positions), logprobs[positions], None, config, reduce=lambda x, q=queue: q.pop(0))
        assert not queue
        total += part.item()
        gradients = [a + b for a, b in zip(gradients, torch.autograd.grad(part, logprobs)[0].tolist(), strict=True)]
    assert total == pytest.approx(loss)
    assert gradients == pytest.approx(gradient)


def test_trainer_old_logprobs_stand_below_the_ratio_where_given_else_the_current_ones():
    config = GrpoConfig(old_logprobs="trainer")
    trainer = double([x + 0.1 for x in NOW])
    _, _, sums = loss_and_gradient(config, old_logprobs=trainer)
    assert sums["ratio_sum"] == pytest.approx(3 * math.exp(-0.1))
    _, _, sums = loss_and_gradient(config)
    assert sums["ratio_sum"] == 3
    _, _, sums = loss_and_gradient(GrpoConfig(), old_logprobs=trainer)
    assert sums["ratio_sum"] == pytest.approx(sum(math.exp(NOW[t] - OLD[t]) for t in TRAINED))


@pytest.mark.parametrize(
    "config", [GrpoConfig(), CispoConfig(), GspoConfig(), GrpoConfig(entropy_coef=0.1, kl_coef=0.1)]
)
def test_what_stands_on_untrained_positions_does_not_matter(config):
    poisoned = double([math.inf if not on else x for on, x in zip(MASK, OLD, strict=True)])
    nan = double([math.nan if not on else x for on, x in zip(MASK, OLD, strict=True)])
    entropies = double([0.5] * len(NOW))
    clean = loss_and_gradient(config, entropies=entropies, reference_logprobs=double(OLD))
    dirty = loss_and_gradient(
        config,
        entropies=torch.where(torch.tensor(MASK), entropies, math.nan),
        engine_logprobs=poisoned,
        reference_logprobs=nan,
        advantages=torch.where(torch.tensor(MASK), double(ADVANTAGES), math.nan),
    )
    assert dirty[0] == clean[0]
    assert dirty[1] == clean[1]
    assert dirty[2] == clean[2]


def test_a_far_off_token_gives_a_finite_loss_and_gradient():
    loss, gradient, _ = loss_and_gradient(GrpoConfig(), engine_logprobs=double([-1000.0] * len(NOW)))
    assert math.isfinite(loss)
    assert all(map(math.isfinite, gradient))


def test_a_microbatch_without_trained_tokens_has_zero_loss_and_a_graph():
    empty = {
        "loss_mask": torch.zeros(7, dtype=torch.bool),
        "weights": double([0] * 7),
        "segment_tokens": double([0, 0]),
    }
    for config in (GrpoConfig(), GspoConfig(old_logprobs="trainer", correction=MisConfig(level="geometric"))):
        loss, gradient, sums = loss_and_gradient(config, **empty)
        assert loss == 0
        assert gradient == [0] * 7
        assert set(sums.values()) == {0}


# --------------------------------------------------------------------------------------------- KL and entropy


def test_kl_estimators_by_hand():
    logprobs, reference = double([-1.0, -0.5]), double([-1.5, -0.2])
    assert kl_estimate(logprobs, reference, "k1").tolist() == pytest.approx([0.5, -0.3])
    assert kl_estimate(logprobs, reference, "k2").tolist() == pytest.approx([0.125, 0.045])
    expected = [math.exp(-0.5) - 1 + 0.5, math.exp(0.3) - 1 - 0.3]
    assert kl_estimate(logprobs, reference, "k3").tolist() == pytest.approx(expected)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_expected_gradient_of_each_estimator_is_what_the_docs_say(estimator):
    """Enumerate a three-token vocabulary: the expectation over sampled tokens is a finite sum."""
    theta = double([0.3, -0.2, 0.9]).requires_grad_()
    reference = double([0.5, 0.1, -0.4]).log_softmax(0)
    logprobs = theta.log_softmax(0)
    probabilities = logprobs.exp()
    (exact,) = torch.autograd.grad((probabilities * (logprobs - reference)).sum(), theta, retain_graph=True)
    (other_way,) = torch.autograd.grad((reference.exp() * (reference - logprobs)).sum(), theta, retain_graph=True)
    plain = (probabilities.detach() * kl_estimate(logprobs, reference, estimator)).sum()
    (plain_gradient,) = torch.autograd.grad(plain, theta, retain_graph=True)
    ratio = (logprobs - logprobs.detach()).exp()
    unbiased = (probabilities.detach() * ratio * kl_estimate(logprobs, reference, estimator)).sum()
    (unbiased_gradient,) = torch.autograd.grad(unbiased, theta)
    if estimator == "k1":
        assert plain_gradient.abs().max() < 1e-12
    if estimator == "k3":
        torch.testing.assert_close(plain_gradient, other_way)
    if estimator == "k2":
        torch.testing.assert_close(plain_gradient, exact)
    else:
        torch.testing.assert_close(unbiased_gradient, exact)


@pytest.mark.parametrize("unbiased", [False, True])
def test_kl_to_the_reference_is_added_with_its_coefficient(unbiased):
    reference = [x - 0.3 for x in NOW]
    config = GrpoConfig(kl_coef=0.1, kl_unbiased=unbiased)
    base, _, _ = loss_and_gradient(GrpoConfig())
    loss, _, sums = loss_and_gradient(config, reference_logprobs=double(reference))
    k3 = math.exp(-0.3) - 1 + 0.3
    factors = [math.exp(NOW[t] - OLD[t]) if unbiased else 1.0 for t in TRAINED]
    assert sums["reference_kl_sum"] == pytest.approx(sum(k3 * f for f in factors))
    expected = 0.1 * sum(WEIGHTS[t] * k3 * f for t, f in zip(TRAINED, factors, strict=True))
    assert sums["kl_loss"] == pytest.approx(expected)
    assert loss == pytest.approx(base + expected)
    assert sums["policy_loss"] == pytest.approx(base)


def test_entropy_bonus_is_subtracted_and_has_its_own_gradient():
    entropies = double([2.0] * 7).requires_grad_()
    loss, sums = policy_loss(inputs(), now(), entropies, GrpoConfig(entropy_coef=0.01))
    base, _, _ = loss_and_gradient(GrpoConfig())
    assert loss.item() == pytest.approx(base - 0.01 * 2.0)
    assert sums["entropy_sum"].item() == 6
    assert torch.autograd.grad(loss, entropies)[0].tolist() == pytest.approx([-0.01 * w for w in WEIGHTS])


def test_terms_without_their_inputs_are_refused():
    with pytest.raises(ShapeError, match="no reference log-probs"):
        policy_loss(inputs(), now(), None, GrpoConfig(kl_coef=0.1))
    with pytest.raises(ShapeError, match="no entropies"):
        policy_loss(inputs(), now(), None, GrpoConfig(entropy_coef=0.1))
    with pytest.raises(ShapeError, match=r"logprobs must have shape \(7,\)"):
        policy_loss(inputs(), double([0.0]), None, GrpoConfig())


# ------------------------------------------------------------------------------------------------ corrections

TRAINER = [0.0, -0.3, -2.6, 0.0, 0.0, 0.3, 0.0]  # gaps to OLD: 0.6, -1.5, 0.9


@pytest.mark.parametrize(
    ("correction", "weights", "bounded", "removed"),
    [
        (TisConfig(), [math.exp(0.6), math.exp(-1.5), 2.0], 1, 0),
        (TisConfig(low=0.5), [math.exp(0.6), 0.5, 2.0], 2, 0),
        (TisConfig(level="sequence"), [math.exp(-0.9), math.exp(-0.9), 2.0], 1, 0),
        (TisConfig(level="geometric", low=0.9, high=1.1), [0.9, 0.9, 1.1], 3, 0),
        (IcepopConfig(low=0.5, high=2.2), [math.exp(0.6), 0.0, 0.0], 0, 2),
        (MisConfig(), [math.exp(-0.9), math.exp(-0.9), 0.0], 0, 1),
        (MisConfig(level="token", mode="truncate", high=2.0, low=0.9), [math.exp(0.6), math.exp(-1.5), 2.0], 1, 0),
        (MisConfig(level="token", mode="clip", high=2.0, low=0.9), [math.exp(0.6), 0.9, 2.0], 2, 0),
        (MisConfig(level="geometric", high=1.5), [math.exp(-0.45), math.exp(-0.45), 0.0], 0, 1),
        (MisConfig(level="token", high=9.0, veto=0.3), [0.0, 0.0, math.exp(0.9)], 0, 2),
    ],
)
def test_correction_weights_by_hand(correction, weights, bounded, removed):
    config = GrpoConfig(old_logprobs="trainer", correction=correction)
    loss, _, sums = loss_and_gradient(config, old_logprobs=double(TRAINER))
    expected = 0.0
    for t, weight in zip(TRAINED, weights, strict=True):
        ratio = math.exp(NOW[t] - TRAINER[t])
        clipped = min(max(ratio, 0.8), 1.28)
        expected += WEIGHTS[t] * weight * max(-ratio * ADVANTAGES[t], -clipped * ADVANTAGES[t])
    assert loss == pytest.approx(expected)
    assert sums["correction_weight_sum"] == pytest.approx(sum(weights))
    assert sums["correction_bounded_sum"] == bounded
    assert sums["correction_removed_sum"] == removed


def test_correction_weights_are_constants():
    weights, sums = correction_weights(inputs(), now(), TisConfig())
    assert not weights.requires_grad
    assert not any(value.requires_grad for value in sums.values())


def test_correction_weighs_neither_kl_nor_entropy():
    config = GrpoConfig(
        old_logprobs="trainer", correction=IcepopConfig(low=0.99, high=1.0), kl_coef=0.5, entropy_coef=0.5
    )
    loss, _, sums = loss_and_gradient(
        config,
        old_logprobs=double([x + 1 for x in OLD]),
        reference_logprobs=double([x - 0.3 for x in NOW]),
        entropies=double([1.0] * 7),
    )
    assert sums["correction_removed_sum"] == 3
    assert sums["policy_loss"] == 0
    assert loss == pytest.approx(0.5 * (math.exp(-0.3) - 1 + 0.3) - 0.5)


# -------------------------------------------------------------------------------------------------------- SFT


def test_sft_loss_is_the_weighted_negative_log_likelihood():
    logprobs = now()
    loss, sums = sft_loss(inputs(), logprobs, double([1.0] * 7))
    assert loss.item() == pytest.approx(-sum(WEIGHTS[t] * NOW[t] for t in TRAINED))
    assert torch.autograd.grad(loss, logprobs)[0].tolist() == [-w for w in WEIGHTS]
    assert {k: v.item() for k, v in sums.items()} == pytest.approx(
        {"loss": loss.item(), "tokens": 3, "nll_sum": 2.4, "entropy_sum": 3}
    )


def test_half_precision_logprobs_are_summed_in_float32():
    loss, _ = sft_loss(inputs(weights=torch.tensor(WEIGHTS)), torch.tensor(NOW, dtype=torch.bfloat16))
    assert loss.dtype == torch.float32
