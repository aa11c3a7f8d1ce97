"""Rows in verl's shape. The field lists are those of `AgentLoopOutput` in verl 0.9.1, read there."""

import json

import pytest
from hypothesis import given
from tests.ledger.export.conftest import CALLS, grown, same

from agar.ledger.export.verl import VerlTarget, verl_row

FIELDS = {
    "prompt_ids", "response_ids", "response_mask", "response_logprobs", "routed_experts", "multi_modal_data",
    "reward_score", "num_turns", "metrics", "extra_fields", "mm_processor_kwargs", "mm_processor_output",
}  # fmt: skip
METRICS = {"generate_sequences", "tool_calls", "compute_score", "num_preempted"}
EXTRA = {"turn_scores", "tool_rewards", "min_global_steps", "max_global_steps", "extras"}
"""The keys of `extra_fields` that verl gives every batch."""


@pytest.fixture
def rows(episode):
    return [verl_row(episode, index) for index in range(2)]


def test_every_column_is_one_of_verls(rows):
    for row in rows:
        assert set(row) - {"uid", "key", "agar"} <= FIELDS
        assert set(row["metrics"]) == METRICS
        assert set(row["extra_fields"]) <= EXTRA


def test_a_row_is_prompt_and_response(rows, trace):
    row = rows[0]
    first, second, bridge = trace.nodes[0].sampled, trace.nodes[2].sampled, trace.nodes[2].delta
    assert row["prompt_ids"] == trace.nodes[0].delta.tolist()
    assert row["response_ids"] == [*first.token_ids, *bridge, *second.token_ids]
    assert row["response_mask"] == [1] * len(first) + [0] * len(bridge) + [1] * len(second)
    assert row["response_logprobs"][: len(first)] == first.logprobs.tolist()
    assert row["num_turns"] == 5  # system, user, assistant, tool, assistant
    assert row["reward_score"] == 1.0
    assert row["extra_fields"] == {"turn_scores": [0.25, 0.75], "min_global_steps": 3, "max_global_steps": 4}


@given(CALLS)
def test_a_training_row_comes_back_from_it_bit_for_bit(family, calls):
    episode = grown(family, calls)
    for index, sample in enumerate(episode.emission.samples):
        row = verl_row(episode, index)
        pad = [0] * len(row["prompt_ids"])
        tokens = [*row["prompt_ids"], *row["response_ids"]]
        told = json.loads(row["agar"])
        same(sample, told, tokens, [*pad, *row["response_mask"]], [*pad, *row["response_logprobs"]])


def test_keys_tell_the_rows_of_one_episode_as_verl_splits_them(rows):
    split = [row["key"].rsplit("_", 2) for row in rows]
    assert split == [["k#5:agent", "7", "0"], ["k#5:agent", "7", "1"]]
    assert [row["uid"] for row in rows] == ["k#5:agent", "k#5:agent"]


def test_a_parquet_file_for_each_batch(episode, tmp_path, rows):
    parquet = pytest.importorskip("pyarrow.parquet")
    target = VerlTarget(tmp_path)
    assert target.add(episode) == 2
    assert target.close() == 1
    table = parquet.read_table(tmp_path / "step-000003.parquet")
    read = table.to_pylist()
    assert read == rows
    assert json.loads(read[0]["agar"])["task"]["payload"] == {"answer": 29}
    assert str(table.schema.field("response_logprobs").type) == "list<element: float>"


def test_what_verl_has_no_place_for_is_named(episode, tmp_path):
    pytest.importorskip("pyarrow")
    target = VerlTarget(tmp_path)
    names = set(target.losses(episode))
    assert names == {"weight", "excluded", "messages", "outcome"}
    assert names <= set(target.unread)
