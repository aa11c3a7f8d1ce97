"""The whole ring: real environment, sandbox, gateway, router, SGLang, Megatron-core, Ray."""

import json
from collections import Counter

import numpy as np
import pytest

from agar.ledger.audit import audit
from agar.ledger.emission import emit
from agar.ledger.trace import load_traces

pytestmark = [pytest.mark.sglang, pytest.mark.megatron, pytest.mark.ray, pytest.mark.sandbox, pytest.mark.timeout(900)]


def test_the_run_folder_holds_what_a_run_leaves_behind(trained):
    for name in ("recipe.json", "metrics.jsonl", "reward.png", "logs", "traces/step-000001.jsonl"):
        assert (trained.folder / name).exists(), name
    assert json.loads((trained.folder / "recipe.json").read_text())["run"]["steps"] == 4
    assert [row["step"] for row in trained.steps()] == [1, 2, 3, 4]
    assert "reward" in trained.printed.splitlines()[-2]


def test_the_first_step_is_on_policy(trained):
    first = trained.steps()[0]
    assert first["trainer/engine_kl_mean"] < 1e-4
    assert first["rollout/staleness_max"] == 0


def test_engine_and_trainer_agree_on_every_fresh_token_after_each_publish(trained):
    assert [row["trainer/engine_gap_max"] < 1e-3 for row in trained.steps()] == [True] * 4


def test_a_row_of_each_batch_is_scored_again_before_it_is_trained(trained):
    assert all(row["ledger/parity_tokens"] > 0 for row in trained.steps())
    assert [row["ledger/parity_max_nats"] < 1e-3 for row in trained.steps()] == [True] * 4
    assert all(row["ledger/looked_at_I6"] == 4 and row["ledger/violations"] == 0 for row in trained.steps())


def test_a_step_says_what_gateway_and_engines_counted(trained):
    last = trained.steps()[-1]
    assert last["gateway/sessions_sealed_count"] >= 4 * 6 * 4
    assert last["gateway/refused_calls_count"] == 0
    assert last["engines/serving_count"] == 2
    assert last["engines/engine_failures_count"] == 0


def test_every_token_carries_the_version_that_sampled_it(trained):
    for step in (1, 2, 3, 4):
        traces = list(load_traces(trained.folder / "traces" / f"step-{step:06d}.jsonl"))
        versions = {int(v) for trace in traces for node in trace.nodes for v in node.sampled.policy_versions}
        assert versions == {step - 1}


def test_saved_traces_pass_the_audit_again(trained):
    for step in (1, 2, 3, 4):
        traces = list(load_traces(trained.folder / "traces" / f"step-{step:06d}.jsonl"))
        samples = [sample for trace in traces for sample in emit(trace)]
        report = audit(traces, samples)
        assert report.ok, report.violations
        assert report.sampled_tokens == report.trained_tokens + sum(report.excluded.values())
        assert len(traces) == 24


def test_groups_are_whole(trained):
    traces = list(load_traces(trained.folder / "traces" / "step-000002.jsonl"))
    assert set(Counter(trace.group for trace in traces).values()) == {4}


def test_the_checkpoint_loads_with_transformers_and_has_moved(trained, warm):
    import torch
    from transformers import AutoModelForCausalLM

    before = AutoModelForCausalLM.from_pretrained(warm, dtype=torch.float32).state_dict()
    after = AutoModelForCausalLM.from_pretrained(trained.checkpoint() / "main" / "hf", dtype=torch.float32).state_dict()
    assert before.keys() == after.keys()
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(moved) > len(before) / 2


def test_what_the_engine_said_is_what_transformers_says_of_the_checkpoint(trained, warm):
    """The last batch was sampled on the weights of the checkpoint before it."""
    import torch
    from transformers import AutoModelForCausalLM

    checkpoints = sorted((trained.folder / "checkpoints").glob("step-*"))
    model = AutoModelForCausalLM.from_pretrained(checkpoints[-2] / "main" / "hf", dtype=torch.float32).eval()
    worst = 0.0
    for trace in list(load_traces(trained.folder / "traces" / "step-000004.jsonl"))[:8]:
        for sample in emit(trace):
            ids = torch.tensor(sample.token_ids.astype(np.int64))[None]
            with torch.no_grad():
                logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0].numpy()
            mask = sample.loss_mask[1:]
            worst = max(worst, float(np.abs(logprobs[mask] - sample.logprobs[1:][mask]).max(initial=0.0)))
    assert 0 < worst < 1e-3


def test_greedy_text_of_the_engine_is_that_of_transformers(trained, greedy):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = trained.checkpoint() / "main" / "hf"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (file,) = (greedy.folder / "traces").glob("eval-*.jsonl")
    compared = 0
    for trace in load_traces(file):
        for node in trace.nodes:
            prompt = torch.tensor(trace.prompt(node.id).astype(np.int64))[None]
            with torch.no_grad():
                said = model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    do_sample=False,
                    max_new_tokens=len(node.sampled),
                    eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
                    pad_token_id=tokenizer.pad_token_id,
                )[0, prompt.shape[1] :]
            assert tokenizer.decode(said) == tokenizer.decode(node.sampled.token_ids.tolist())
            compared += 1
    assert compared >= 6
