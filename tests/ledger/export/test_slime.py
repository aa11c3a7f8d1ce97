"""Rows in slime's shape. The field list is that of `slime/utils/types.py` at 0.3.1, read there, not from our code."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from tests.ledger.export.conftest import CALLS, grown, same

from agar.ledger.emission import emission
from agar.ledger.export.slime import STATUS, SlimeTarget, slime_row
from agar.ledger.export.target import Episode
from agar.types import GroupId, Outcome, Sampled

FIELDS = {
    "group_index", "index", "rollout_id", "prompt", "tokens", "multimodal_inputs", "multimodal_train_inputs",
    "multimodal_train_input_id", "apply_chat_template_kwargs", "response", "response_length", "label", "reward",
    "loss_mask", "weight_versions", "rollout_log_probs", "rollout_top_p_token_ids", "rollout_top_p_token_offsets",
    "rollout_routed_experts", "remove_sample", "teacher_log_probs", "status", "metadata", "generate_function_path",
    "custom_rm_path", "train_metadata", "session_id", "non_generation_time", "spec_info", "prefix_cache_info",
}  # fmt: skip
STATUSES = {"pending", "completed", "truncated", "aborted", "failed"}
READ_ELSEWHERE = {"raw_reward", "round_number", "source_name"}
"""Keys of `metadata` that slime itself reads."""


@pytest.fixture
def rows(episode):
    return [slime_row(episode, sample, 5) for sample in episode.emission.samples]


def test_every_field_is_one_of_slimes(rows):
    for row in rows:
        assert set(row) <= FIELDS
        assert row["status"] in STATUSES
        assert not set(row["metadata"]) & READ_ELSEWHERE
    assert set(STATUS) == {outcome for outcome in Outcome if outcome.trainable}


def test_response_arrays_cover_the_response_only(rows, trace):
    row = rows[0]
    prompt = trace.nodes[0].delta.tolist()
    first, second = trace.nodes[0].sampled, trace.nodes[2].sampled
    bridge = trace.nodes[2].delta.tolist()
    assert row["tokens"] == [*prompt, *first.token_ids, *bridge, *second.token_ids]
    assert row["response_length"] == len(row["tokens"]) - len(prompt)
    assert row["loss_mask"] == [1] * len(first) + [0] * len(bridge) + [1] * len(second)
    assert row["rollout_log_probs"] == [*first.logprobs.tolist(), *[0.0] * len(bridge), *second.logprobs.tolist()]
    assert row["weight_versions"] == ["3", "4"]


def test_rows_of_one_episode_are_one_rollout_with_the_whole_reward_each(rows):
    assert [(row["rollout_id"], row["index"], row["group_index"], row["reward"]) for row in rows] == [
        (7, 7, 5, 1.0)
    ] * 2
    assert rows[0]["prompt"] == [
        {"role": "system", "content": "You hunt."},
        {"role": "user", "content": "How much gold?"},
    ]
    assert rows[1]["prompt"] == [{"role": "user", "content": "Sum up."}]


def test_a_group_is_of_one_task_one_role_and_one_batch(episode, tmp_path):
    torch = pytest.importorskip("torch")
    trace, target = episode.trace, SlimeTarget(tmp_path)
    attempts = [
        ("step-000001", trace),
        ("step-000001", replace(trace, trajectory="k#5/1")),
        ("step-000001", replace(trace, role="judge")),
        ("step-000001", replace(trace, group=GroupId(task="l", ordinal=5))),
        ("step-000002", trace),
    ]
    for number, (batch, each) in enumerate(attempts):
        target.add(Episode(batch=batch, number=number, trace=each, emission=emission(each)))
    target.close()
    rows = [row for n in (0, 1) for row in torch.load(tmp_path / f"{n}.pt", weights_only=False)["samples"]]
    groups = {row["index"]: row["group_index"] for row in rows}
    assert [groups[index] for index in range(5)] == [0, 0, 1, 2, 3]


@given(CALLS)
def test_a_training_row_comes_back_from_it_bit_for_bit(family, calls):
    episode = grown(family, calls)
    for sample in episode.emission.samples:
        row = slime_row(episode, sample, 5)
        pad = [0] * (len(row["tokens"]) - row["response_length"])
        agar = row["metadata"]["agar"]
        same(sample, agar, row["tokens"], [*pad, *row["loss_mask"]], [*pad, *row["rollout_log_probs"]])


def test_a_file_for_each_batch_as_slime_loads_it(episode, tmp_path):
    torch = pytest.importorskip("torch")
    target = SlimeTarget(tmp_path)
    assert [target.add(episode), target.add(replace(episode, batch="step-000004", number=8))] == [2, 2]
    assert target.close() == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.pt", "1.pt"]
    loaded = torch.load(tmp_path / "1.pt", weights_only=True)
    assert loaded["rollout_id"] == 1
    assert [row["rollout_id"] for row in loaded["samples"]] == [8, 8]
    assert loaded["samples"][0]["metadata"]["agar"]["batch"] == "step-000004"


def test_what_slime_has_no_place_for_is_named(episode, trace, tmp_path):
    pytest.importorskip("torch")
    target = SlimeTarget(tmp_path)
    names = set(target.losses(episode))
    assert names == {"turn_rewards", "policy_versions", "excluded", "tool_calls", "response"}
    failed = replace(trace, outcome=Outcome.INFRA_ERROR, turn_rewards={})
    told = set(target.losses(Episode(batch="b", number=0, trace=failed, emission=emission(failed))))
    assert told == {"excluded", "tool_calls"}
    assert names | told <= set(target.unread)


def test_the_side_arrays_that_slime_knows_are_laid_out_as_it_reads_them(episode, trace, tmp_path):
    """Its offsets have one entry more than the response has tokens; tokens that are not trained have nothing."""
    sample = episode.emission.samples[0]
    start, length = len(trace.nodes[0].delta), len(sample.token_ids)
    kept = np.full((length, 3), -1, np.int32)
    kept[start] = [4, 5, -1]
    kept[start + 1] = [6, 7, 8]
    context = int(np.flatnonzero(~sample.loss_mask[start:])[0]) + start
    kept[context] = [9, 9, 9]
    teacher = -np.arange(length, dtype=np.float32)
    row = slime_row(episode, replace(sample, side={"kept_vocabulary": kept, "teacher_logprobs": teacher}), 5)
    offsets = row["rollout_top_p_token_offsets"]
    assert len(offsets) == row["response_length"] + 1
    assert row["rollout_top_p_token_ids"] == [4, 5, 6, 7, 8]
    assert offsets[:4] == [0, 2, 5, 5]
    assert offsets[-1] == 5
    assert row["teacher_log_probs"] == teacher[start:].tolist()
    assert set(row) <= FIELDS

    pytest.importorskip("torch")
    for name, lost in (("routed_experts", True), ("kept_vocabulary", False)):
        node = trace.nodes[0]
        array = np.zeros((len(node.sampled), 2, 2) if lost else (len(node.sampled), 2), np.int32)
        sampled = Sampled.restore(
            token_ids=node.sampled.token_ids, logprobs=node.sampled.logprobs, finish=node.sampled.finish,
            policy_versions=node.sampled.policy_versions, side={name: array},
        )  # fmt: skip
        other = replace(trace, nodes=(replace(node, sampled=sampled), *trace.nodes[1:]))
        told = SlimeTarget(tmp_path).losses(replace(episode, trace=other))
        assert ("side" in set(told)) == lost
