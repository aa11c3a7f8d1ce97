"""A single rank against Hugging Face transformers and plain torch."""

import shutil

import numpy as np
import pytest
import torch

from agar.errors import ConfigError, TrainerError
from agar.trainer.algorithms.config import GrpoConfig
from agar.trainer.batching.plan import plan_step
from agar.trainer.config import OptimizerConfig, ScheduleConfig, TrainerConfig
from agar.types import Source

pytestmark = [pytest.mark.megatron, pytest.mark.usefixtures("one_rank")]


def make_rank(models, *, tied=True, **settings):
    from agar.trainer.megatron.rank import Rank

    settings.setdefault("optimizer", OptimizerConfig(lr=1e-2))
    return Rank(TrainerConfig(model=models[tied], **settings))


def plan(batch, loss="policy", budget=64):
    return plan_step(batch.samples, algorithm=GrpoConfig(), tokens_per_microbatch=budget, loss=loss).microbatches[0]


def reference(models, tied):
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(models[tied], dtype=torch.float32)


def reference_logprobs(model, sample):
    """Log-probs of every token but the first, from transformers, one sequence at a time."""
    ids = torch.tensor(sample.token_ids.astype(np.int64))
    logits = model(ids[None, :-1]).logits[0]
    return torch.log_softmax(logits.float(), -1).gather(1, ids[1:, None])[:, 0]


@pytest.mark.parametrize("tied", [False, True])
def test_packed_logprobs_equal_those_of_transformers(each, batches, tied):
    batch = batches[tied, Source.SAMPLED]
    microbatches = plan(batch)
    assert len(microbatches) > 1
    found = make_rank(each, tied=tied).logprobs(microbatches)
    model = reference(each, tied)
    for microbatch, ours in zip(microbatches, found, strict=True):
        theirs = [
            reference_logprobs(model, batch.samples[row])[torch.tensor(batch.samples[row].loss_mask[1:])].detach()
            for row in microbatch.rows
        ]
        np.testing.assert_allclose(ours, torch.cat(theirs).numpy(), atol=1e-4)
        assert ours.std() > 0.2  # a model of equal logits would pass everything


def test_padded_logits_equal_those_of_transformers(models):
    from agar.trainer.megatron import compat

    rank, model = make_rank(models), reference(models, tied=True)
    ids = torch.randint(0, 96, (3, 12), generator=torch.Generator().manual_seed(0))
    rank.model.rotary_pos_emb.positions = None
    with torch.no_grad(), compat.quiet():
        ours = rank.model(ids, torch.arange(12).expand(3, -1), None)
        for row, length in enumerate((12, 7, 3)):  # what stands behind a row's end cannot be seen from inside it
            theirs = model(ids[row : row + 1, :length]).logits[0]
            torch.testing.assert_close(ours[row, :length], theirs, rtol=1e-4, atol=1e-4)


def clipped_loss(model, batch):
    """GRPO with clip-higher and token mean, written out: one sequence at a time, from the definition."""
    rewards: dict[str, list[float]] = {}
    for sample in batch.samples:
        rewards.setdefault(sample.group.task, []).append(sample.reward)
    losses, entropies = [], []
    for sample in batch.samples:
        group = np.array(rewards[sample.group.task])
        advantage = (sample.reward - group.mean()) / (group.std(ddof=1) + 1e-6)
        mask = torch.tensor(sample.loss_mask[1:])
        ids = torch.tensor(sample.token_ids.astype(np.int64))
        log_p = torch.log_softmax(model(ids[None, :-1]).logits[0], -1)
        ratio = (log_p.gather(1, ids[1:, None])[:, 0] - torch.tensor(sample.logprobs[1:])).exp()
        token = torch.maximum(-ratio * advantage, -ratio.clamp(0.8, 1.28) * advantage)
        losses.append(token[mask])
        entropies.append(-(log_p.exp() * log_p).sum(-1)[mask])
    return torch.cat(losses).mean(), torch.cat(entropies).mean()


@pytest.mark.parametrize("tied", [False, True])
def test_one_policy_step_equals_plain_torch(each, batches, tied):
    batch = batches[tied, Source.SAMPLED]
    rank = make_rank(each, tied=tied)
    report = rank.step(plan(batch))

    model = reference(each, tied)
    loss, entropy = clipped_loss(model, batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    norms = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": norms, "weight_decay": 0.0}]
    torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95)).step()

    assert report.taken
    assert report.sums["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert report.sums["entropy_sum"] / report.sums["tokens"] == pytest.approx(entropy.item(), abs=1e-5)
    assert report.grad_norm == pytest.approx(norm.item(), rel=1e-4)
    # Adam's first step is lr * sign(gradient): compare where the gradient is not within rounding of zero.
    from agar.trainer.megatron.export import gather_tensors

    ours = gather_tensors(rank.model, rank.mapping, rank._tp)
    assert ours is not None
    for name, theirs in model.named_parameters():
        clear = theirs.grad.abs() > 1e-5 if theirs.grad is not None else torch.ones_like(theirs, dtype=torch.bool)
        torch.testing.assert_close(ours[name][clear], theirs.detach()[clear], rtol=1e-3, atol=1e-4)


def test_norms_and_biases_are_not_decayed(each, batches):
    """An epsilon of a million leaves Adam's own step at nothing: only the decay moves weights."""
    rank = make_rank(each, optimizer=OptimizerConfig(lr=1e-2, weight_decay=5.0, eps=1e6))
    before = {name: p.detach().clone() for name, p in rank.model.named_parameters()}
    assert rank.step(plan(batches[True, Source.SAMPLED])).taken
    for name, parameter in rank.model.named_parameters():
        kept = 1.0 if parameter.ndim == 1 else 1 - 1e-2 * 5.0
        torch.testing.assert_close(parameter.detach(), kept * before[name], rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("tied", [False, True])
def test_an_export_holds_what_was_loaded_and_loads_with_transformers(each, tied, tmp_path):
    import transformers
    from safetensors.torch import load_file

    make_rank(each, tied=tied).export(tmp_path)
    shutil.copy(each[tied] / "config.json", tmp_path)
    ours, theirs = (load_file(directory / "model.safetensors") for directory in (tmp_path, each[tied]))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    _, told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values()), told


def test_engine_gap_is_zero_on_the_trainers_own_logprobs(models, batches):
    batch = batches[True, Source.SAMPLED]
    microbatches = plan(batch)
    rank = make_rank(models)
    exact = []
    for microbatch, found in zip(microbatches, rank.logprobs(microbatches), strict=True):
        logprobs = np.zeros(len(microbatch), np.float32)
        logprobs[microbatch.loss_mask] = found
        exact.append(microbatch.but(logprobs=logprobs))
    sums = (report := rank.step(exact)).sums
    assert report.gap_max == pytest.approx(0, abs=1e-5)
    assert sums["engine_kl_sum"] / sums["tokens"] == pytest.approx(0, abs=1e-6)
    assert sums["ratio_sum"] / sums["tokens"] == pytest.approx(1, abs=1e-5)


def test_imitation_lowers_its_loss_and_the_split_does_not_matter(models, batches):
    batch = batches[True, Source.DEMONSTRATION]
    curves = []
    for budget in (32, 4096):
        rank = make_rank(models, loss="sft")
        curves.append([rank.step(plan(batch, "sft", budget)).sums["loss"] for _ in range(5)])
    assert curves[0] == pytest.approx(curves[1], abs=1e-3)
    assert curves[0][-1] < curves[0][0] - 0.3


def test_a_step_that_is_not_finite_changes_nothing(models, batches):
    rank = make_rank(models, schedule=ScheduleConfig(warmup_steps=4))
    microbatches = plan(batches[True, Source.SAMPLED])
    poisoned = [m.but(advantages=np.where(m.loss_mask, np.nan, 0).astype(np.float32)) for m in microbatches]
    before = {name: p.detach().clone() for name, p in rank.model.named_parameters()}
    report = rank.step(poisoned)
    assert not report.taken
    assert all(torch.equal(before[name], p) for name, p in rank.model.named_parameters())
    after = rank.step(microbatches)
    assert after.taken
    assert after.lr == report.lr  # the schedule waited


def test_a_microbatch_that_trains_nothing_adds_nothing(models, batches):
    from agar.trainer.batching.microbatch import filler

    microbatches = plan(batches[True, Source.SAMPLED])
    plain, filled = make_rank(models).step(microbatches), make_rank(models).step([*microbatches, filler()])
    assert filled.sums["loss"] == pytest.approx(plain.sums["loss"], abs=1e-6)
    assert filled.grad_norm == pytest.approx(plain.grad_norm, rel=1e-5)


def test_temperature_divides_the_logits(models, batches):
    microbatches = plan(batches[True, Source.SAMPLED])
    hot = make_rank(models, temperature=2.0).logprobs(microbatches)[0]
    sample = batches[True, Source.SAMPLED].samples[microbatches[0].rows[0]]
    ids = torch.tensor(sample.token_ids.astype(np.int64))
    log_p = torch.log_softmax(reference(models, tied=True)(ids[None, :-1]).logits[0] / 2, -1)
    expected = log_p.gather(1, ids[1:, None])[:, 0][torch.tensor(sample.loss_mask[1:])].detach().numpy()
    np.testing.assert_allclose(hot[: len(expected)], expected, atol=1e-4)


def test_a_sequence_can_be_scored_at_another_temperature_than_the_configured_one(models, batches):
    """As engines score a probe, whatever they sample at."""
    microbatches = plan(batches[True, Source.SAMPLED])
    sample = batches[True, Source.SAMPLED].samples[microbatches[0].rows[0]]
    expected = reference_logprobs(reference(models, tied=True), sample)[torch.tensor(sample.loss_mask[1:])].detach()
    cold = make_rank(models, temperature=0.7)
    found = cold.logprobs(microbatches, temperature=1.0)[0][: len(expected)]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)
    assert np.abs(found - cold.logprobs(microbatches)[0][: len(expected)]).max() > 0.1


def test_recomputed_activations_give_the_same_step(models, batches):
    microbatches = plan(batches[True, Source.SAMPLED])
    plain, again = make_rank(models).step(microbatches), make_rank(models, recompute=True).step(microbatches)
    assert again.sums == pytest.approx(plain.sums)
    assert again.grad_norm == pytest.approx(plain.grad_norm)


def test_bfloat16_trains_on_float32_main_weights(models, batches):
    rank = make_rank(models, dtype="bfloat16", loss="sft", optimizer=OptimizerConfig(lr=1e-3))
    microbatches = plan(batches[True, Source.DEMONSTRATION], "sft")
    losses = [rank.step(microbatches).sums["loss"] for _ in range(4)]
    assert losses[-1] < losses[0]
    assert next(rank.model.parameters()).dtype == torch.bfloat16
    assert rank.optimizer.state()["main"][0].dtype == torch.float32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_loaded_rank_takes_the_step_that_would_have_followed(models, batches, tmp_path, dtype):
    microbatches = plan(batches[True, Source.SAMPLED])
    rank = make_rank(models, dtype=dtype)
    for _ in range(2):
        rank.step(microbatches)
    rank.export(tmp_path / "hf")
    shutil.copy(models[True] / "config.json", tmp_path / "hf")
    rank.save(tmp_path / "state")
    expected = [rank.step(microbatches) for _ in range(2)]
    other = make_rank(models, dtype=dtype)
    other.load(tmp_path / "hf", tmp_path / "state")
    resumed = [other.step(microbatches) for _ in range(2)]
    for a, b in zip(expected, resumed, strict=True):
        assert (a.sums, a.grad_norm, a.lr) == (b.sums, b.grad_norm, b.lr)


def test_a_resume_takes_its_own_betas_and_eps(models, batches, tmp_path):
    """With the same gradient, moments follow the new betas: m = beta m + (1 - beta) g."""
    microbatches = plan(batches[True, Source.SAMPLED])
    rank = make_rank(models)
    rank.step(microbatches)
    rank.export(tmp_path / "hf")
    shutil.copy(models[True] / "config.json", tmp_path / "hf")
    rank.save(tmp_path / "state")

    def first_moment(other):
        inner = other.optimizer._sharded.optimizer
        return torch.cat([inner.state[p]["exp_avg"].flatten() for group in inner.param_groups for p in group["params"]])

    before, after = {}, {}
    for beta in (0.9, 0.5):
        other = make_rank(models, optimizer=OptimizerConfig(lr=1e-2, betas=(beta, 0.6), eps=1e-3))
        other.load(tmp_path / "hf", tmp_path / "state")
        groups = other.optimizer._sharded.optimizer.param_groups
        assert {(*group["betas"], group["eps"]) for group in groups} == {(beta, 0.6, 1e-3)}
        before[beta] = first_moment(other).clone()
        other.step(microbatches)
        after[beta] = first_moment(other).clone()
    torch.testing.assert_close(before[0.9], before[0.5])
    gradient = (after[0.9] - 0.9 * before[0.9]) / 0.1
    torch.testing.assert_close(after[0.5], 0.5 * before[0.5] + 0.5 * gradient, rtol=1e-3, atol=1e-5)


def test_tensors_that_the_model_has_no_place_for_are_refused(models, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(models[True], tmp_path / "odd")
    tensors = load_file(tmp_path / "odd" / "model.safetensors")
    derived = {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}
    derived["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(tensors | derived, tmp_path / "odd" / "model.safetensors", metadata={"format": "pt"})
    make_rank({True: tmp_path / "odd"})
    bias = {"model.layers.1.mlp.up_proj.bias": torch.ones(48)}
    save_file(tensors | bias, tmp_path / "odd" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"no place for here.*model\.layers\.1\.mlp\.up_proj\.bias"):
        make_rank({True: tmp_path / "odd"})


def test_state_of_another_layout_is_refused(models, tmp_path):
    with pytest.raises(TrainerError, match="rank_00000"):
        make_rank(models).load(models[True], tmp_path)
    with pytest.raises(TrainerError, match="another shape"):
        make_rank(models, tied=True).load(models[False], tmp_path)
