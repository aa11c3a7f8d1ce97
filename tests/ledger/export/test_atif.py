"""Episodes as ATIF documents; the field lists are those of `harbor.models.trajectories` in harbor 0.26.0."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from tests.ledger.export.conftest import CALLS, grown

from agar.ledger.emission import emission
from agar.ledger.export.atif import AtifTarget, document
from agar.ledger.export.target import Episode
from agar.ledger.forest import Forest
from agar.ledger.trace import Trace
from agar.types import Finish, ImagePart, Message, Outcome, Reward, Sampled, Sampling, TextPart

FIELDS = {
    "trajectory": {
        "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics",
        "continued_trajectory_ref", "extra", "subagent_trajectories",
    },
    "agent": {"name", "version", "model_name", "tool_definitions", "extra"},
    "step": {
        "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content",
        "tool_calls", "observation", "metrics", "is_copied_context", "llm_call_count", "extra",
    },
    "metrics": {
        "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids", "completion_token_ids",
        "logprobs", "extra",
    },
    "result": {"source_call_id", "content", "subagent_trajectory_ref", "extra"},
    "call": {"tool_call_id", "function_name", "arguments", "extra"},
    "final": {
        "total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps",
        "extra",
    },
}  # fmt: skip
AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}


def check(trajectory):
    """The rules of harbor's models: no unknown field, steps numbered from 1, results that name a call of their step."""
    assert set(trajectory) <= FIELDS["trajectory"]
    assert trajectory["schema_version"] == "ATIF-v1.7"
    assert set(trajectory["agent"]) <= FIELDS["agent"]
    assert set(trajectory["final_metrics"]) <= FIELDS["final"]
    assert [step["step_id"] for step in trajectory["steps"]] == list(range(1, len(trajectory["steps"]) + 1))
    for step in trajectory["steps"]:
        assert set(step) <= FIELDS["step"]
        assert step["source"] in {"system", "user", "agent"}
        assert step["source"] == "agent" or not set(step) & AGENT_ONLY
        calls = step.get("tool_calls", [])
        assert all(set(call) <= FIELDS["call"] for call in calls)
        for result in step.get("observation", {"results": []})["results"]:
            assert set(result) <= FIELDS["result"]
            assert result.get("source_call_id", None) in {None, *(call["tool_call_id"] for call in calls)}
        assert set(step.get("metrics", {})) <= FIELDS["metrics"]
    ids = [other["trajectory_id"] for other in trajectory.get("subagent_trajectories", [])]
    assert len(ids) == len(set(ids))
    for other in trajectory.get("subagent_trajectories", []):
        check(other)


def calls_of(trajectory):
    return [step for step in trajectory["steps"] if "metrics" in step]


def test_the_first_calls_newest_path_is_the_document_and_the_others_go_along(episode):
    told = document(episode)
    check(told)
    assert [step["source"] for step in told["steps"]] == ["system", "user", "agent", "agent"]
    retry, helper = told["subagent_trajectories"]
    assert [other["extra"]["agar"]["nodes"] for other in (told, retry, helper)] == [[0, 2], [0, 1], [3]]
    assert told["agent"]["tool_definitions"][0]["function"]["name"] == "sh"
    assert told["extra"]["agar"]["task"]["payload"] == {"answer": 29}
    assert told["final_metrics"]["extra"] == {"reward": 1.0, "reward_parts": {"found": 1.0}}


def test_what_stands_in_the_main_trajectory_too_is_copied_context(episode, trace):
    copied = document(episode)["subagent_trajectories"][0]["steps"]
    assert [step.get("is_copied_context", False) for step in copied] == [True, True, True, False]
    assert copied[3]["metrics"]["extra"]["excluded"] == [[0, len(trace.nodes[1].sampled), "abandoned_retry"]]


@given(CALLS)
def test_every_call_stands_once_with_its_tokens(family, calls):
    episode = grown(family, calls)
    trace, told = episode.trace, document(episode)
    check(told)
    found = [*calls_of(told), *(step for o in told.get("subagent_trajectories", []) for step in calls_of(o))]
    assert sorted(step["extra"]["agar"]["node"] for step in found) == [node.id for node in trace.nodes]
    for step in found:
        id = step["extra"]["agar"]["node"]
        node = trace.nodes[id]
        metrics = step["metrics"]
        assert metrics["completion_token_ids"] == node.sampled.token_ids.tolist()
        assert np.array(metrics["logprobs"], np.float32).tobytes() == node.sampled.logprobs.tobytes()
        assert metrics["prompt_token_ids"] == trace.prompt(id).tolist()
        assert (metrics["prompt_tokens"], metrics["completion_tokens"]) == (len(trace.prompt(id)), len(node.sampled))


def test_a_tools_result_stands_with_the_call_that_it_answers(episode, trace):
    (result,) = document(episode)["steps"][2]["observation"]["results"]
    assert result == {"content": "29", "source_call_id": trace.nodes[0].turn.tool_calls[0].id}


@pytest.mark.parametrize(
    ("history", "sources"),
    [
        ([Message(role="user", content="a"), Message(role="assistant", content="b")], ["user", "agent", "agent"]),
        ([Message(role="user", content="a"), Message(role="tool", content="b", tool_call_id="x")],
         ["user", "system", "agent"]),
        ([Message(role="tool", content="b", tool_call_id="x")], ["system", "agent"]),
    ],
    ids=["foreign reply", "result of nothing", "result first"],
)  # fmt: skip
def test_odd_histories_are_told_by_the_rules(episode, trace, history, sources):
    node = replace(trace.nodes[3], id=0, messages=tuple(history))
    odd = replace(trace, nodes=(node,), turn_rewards={}, divergences=())
    told = document(replace(episode, trace=odd, emission=emission(odd)))
    check(told)
    assert [step["source"] for step in told["steps"]] == sources


def test_images_are_parts_where_atif_knows_their_kind(episode, trace, tmp_path):
    parts = (TextPart(text="look"), ImagePart(url="data:image/png;base64,AA"), ImagePart(url="https://x.test/a.bmp"))
    node = replace(trace.nodes[3], id=0, messages=(Message(role="user", content=parts),))
    seen = replace(trace, nodes=(node,), turn_rewards={}, divergences=())
    told = replace(episode, trace=seen, emission=emission(seen))
    assert document(told)["steps"][0]["message"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"media_type": "image/png", "path": "data:image/png;base64,AA"}},
        {"type": "text", "text": "https://x.test/a.bmp"},
    ]
    assert "images" in set(AtifTarget(tmp_path).losses(told))


def test_a_file_for_each_episode_of_strict_json(episode, trace, tmp_path):
    odd = replace(trace, reward=Reward(total=1.0, parts={"odd": float("nan")}))
    target = AtifTarget(tmp_path)
    assert target.add(replace(episode, trace=odd)) == 1
    empty = replace(trace, nodes=(), turn_rewards={}, divergences=(), outcome=Outcome.INFRA_ERROR)
    assert target.add(Episode(batch="b", number=8, trace=empty, emission=emission(empty))) == 0
    assert target.close() == 1

    def refuse(text):
        raise ValueError(text)

    (file,) = tmp_path.iterdir()
    assert file.name == "step-000003-000007.json"
    told = json.loads(file.read_text("utf-8"), parse_constant=refuse)
    assert told["final_metrics"]["extra"]["reward_parts"] == {"odd": "nan"}
    assert set(target.losses(episode)) == {"rows", "order"}


def test_a_compaction_is_told_as_a_trajectory_of_its_own(episode, family):
    forest = Forest(family)
    for history in ([Message(role="user", content="a")], [Message(role="user", content="a, in short")]):
        plan = forest.plan(history)
        ids = family.tokenizer.encode("ok<|im_end|>", special=True)
        sampled = Sampled.restore(
            token_ids=ids, logprobs=np.zeros(len(ids)), policy_versions=np.zeros(len(ids)), finish=Finish.STOP
        )
        forest.commit(plan, sampled, family.parse(ids), sampling=Sampling())
    trace: Trace = replace(episode.trace, nodes=tuple(forest.nodes), turn_rewards={}, divergences=())
    told = document(replace(episode, trace=trace, emission=emission(trace)))
    check(told)
    assert [told["extra"]["agar"]["root"], *(o["extra"]["agar"]["root"] for o in told["subagent_trajectories"])] == [
        "first",
        "unrelated",
    ]
