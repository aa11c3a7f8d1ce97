"""What exports share: where the prompt ends, and the provenance of a row."""

import json
from dataclasses import replace

import numpy as np

from agar.ledger.export.target import finite, prompt_length, provenance, runs


def test_the_prompt_ends_where_the_first_reply_begins(episode, trace):
    row, other = episode.emission.samples
    assert prompt_length(row) == len(trace.nodes[0].delta)
    assert prompt_length(other) == len(trace.nodes[3].delta)
    assert prompt_length(replace(row, meta={})) == len(trace.nodes[0].delta)


def test_provenance_says_what_other_programs_have_no_field_for(episode, trace):
    row = episode.emission.samples[0]
    told = json.loads(json.dumps(provenance(episode, row), allow_nan=False))
    assert (told["batch"], told["trajectory"], told["group"]) == ("step-000003", "k#5/0", ["k", 5])
    assert told["task"]["payload"] == {"answer": 29}
    versions = [version for version, count in told["policy_versions"] for _ in range(count)]
    assert versions == row.policy_versions.tolist()
    start = len(trace.nodes[0].delta)
    n = len(trace.nodes[0].sampled)
    assert told["rewards"] == [[start + n - 1, 0.25], [len(row.token_ids) - 1, 0.75]]
    assert told["excluded"] == [[1, 0, len(trace.nodes[1].sampled), "abandoned_retry"]]
    trained = [int(sample.loss_mask.sum()) for sample in episode.emission.samples]
    assert told["weight"] == trained[0] / sum(trained)


def test_equal_neighbours_are_runs():
    assert runs(np.array([-1, -1, 3, 4, 4, 3], np.int32)) == [[-1, 2], [3, 1], [4, 2], [3, 1]]
    assert runs(np.array([], np.int32)) == []


def test_numbers_that_json_does_not_know_become_text():
    assert finite({"a": [float("nan"), 1.5], "b": float("-inf"), "c": True}) == {
        "a": ["nan", 1.5],
        "b": "-inf",
        "c": True,
    }
