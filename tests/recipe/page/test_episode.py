"""What is told of an episode is what emission and the trace say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from agar.ledger.config import RecordPolicy
from agar.ledger.emission import emit
from agar.recipe.page.episode import episode_of, place, plain
from agar.recipe.page.words import Words
from agar.types import Outcome


@pytest.fixture
def shown(trace, family):
    return episode_of(trace, RecordPolicy(), Words(family.tokenizer), file="step-000007")


def test_every_sampled_token_is_there_with_its_numbers(trace, shown):
    for node, told in zip(trace.nodes, shown.detail["nodes"], strict=True):
        assert told["sampled"]["ids"] == node.sampled.token_ids.tolist()
        assert told["delta"]["ids"] == node.delta.tolist()
        assert np.allclose(told["logprobs"], node.sampled.logprobs, atol=5e-5)
        versions = [version for version, count in told["versions"] for _ in range(count)]
        assert versions == node.sampled.policy_versions.tolist()


def test_the_abandoned_retry_is_excluded_and_the_rest_trained(trace, shown):
    out = {id: told["excluded"] for id, told in enumerate(shown.detail["nodes"]) if told["excluded"]}
    n = len(trace.nodes[1].sampled)
    assert out == {1: [[0, n, "abandoned_retry"]]}
    assert shown.summary["excluded"] == {"abandoned_retry": n}
    assert shown.summary["trained"] == shown.summary["sampled"] - n
    assert [row["trained"] for row in shown.detail["rows"]] == [s.loss_mask.sum() for s in emit(trace)]


def test_the_forest_the_rewards_and_the_divergences_are_told(shown):
    assert [(n["parent"], n["edge"]) for n in shown.detail["nodes"]] == [
        (None, "first"), (0, "extend"), (0, "branch"), (0, "branch"),
    ]  # fmt: skip
    assert [node["reward"] for node in shown.detail["nodes"]] == [None, None, None, 1.0]
    assert [(d["kind"], d["node"]) for d in shown.detail["divergences"]] == [("whitespace", 0)]


def test_a_failed_episode_trains_nothing_and_says_why(trace):
    told = episode_of(replace(trace, outcome=Outcome.INFRA_ERROR), RecordPolicy(), Words(None), file="x").summary
    assert told["excluded"] == {"infra_failure": told["sampled"]}


def test_a_broken_invariant_is_told(trace, family):
    nodes = (replace(trace.nodes[0], prompt_digest="0" * 32), *trace.nodes[1:])
    told = episode_of(replace(trace, nodes=nodes), RecordPolicy(), Words(None), file="x")
    assert told.summary["violations"] == 1
    assert told.detail["violations"][0]["invariant"] == "I7"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("step-000003", ("train", 3)),
        ("eval-000025-Hunt-v0", ("eval", 25)),
        ("rollouts", ("rollouts", None)),
        ("step-by-step", ("step-by-step", None)),
    ],
)
def test_files_say_which_batch_they_are(file, said):
    assert place(file) == said


def test_everything_can_be_spelt_as_json(shown):
    json.dumps([shown.summary, shown.detail], allow_nan=False)
    assert plain({1: float("inf"), "a": (True, None, {2})}) == {"1": "inf", "a": [True, None, "{2}"]}
