"""Saved traces are audited line by line; a changed byte, a lost token and a repeated trajectory are found."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agar.errors import ConfigError
from agar.ledger.emission import Exclusion
from agar.ledger.forest import Forest
from agar.ledger.saved import SavedTraces
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace, dump_traces
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow


@pytest.fixture
def trace(family):
    forest = Forest(family)
    history: list[Message] = []
    for finish, text in ((Finish.STOP, "Start."), (Finish.LENGTH, "Go on.")):
        history.append(Message(role="user", content=text))
        plan = forest.plan(history)
        ids = np.array([60, 61, 62, family.stop_ids[0] if finish is Finish.STOP else 63], np.int32)
        sampled = Sampled.restore(
            token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), policy_versions=np.full(4, 3), finish=finish
        )
        history.append(forest.commit(plan, sampled, family.parse(ids), sampling=Sampling()).turn.message())
    return Trace(
        trajectory="t0", group=GroupId(task="k", ordinal=0), role="agent", policy="main", task=TaskRow(key="k"),
        nodes=tuple(forest.nodes), reward=Reward(total=1.0), outcome=Outcome.COMPLETED,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path):
    (tmp_path / "traces").mkdir()
    return tmp_path


def broken(report):
    return [violation.invariant for violation in report.violations]


def test_sound_traces_of_a_run_are_counted_over_all_files(run, trace):
    dump_traces(run / "traces" / "step-000001.jsonl", [trace, replace(trace, trajectory="t1")])
    dump_traces(run / "traces" / "step-000002.jsonl", [replace(trace, trajectory="t2", outcome=Outcome.INFRA_ERROR)])
    report = SavedTraces.find(run).audit()
    assert report.ok
    assert (report.traces, report.samples, report.sampled_tokens, report.trained_tokens) == (3, 2, 24, 16)
    assert report.excluded == {Exclusion.INFRA_FAILURE: 8}


def test_the_record_policy_is_the_runs_for_one_file_too(run, trace):
    (run / "recipe.json").write_text(json.dumps({"ledger": {"record": {"truncated": "exclude"}}}))
    file = run / "traces" / "step-000001.jsonl"
    dump_traces(file, [trace])
    assert SavedTraces.find(run).audit().excluded == {Exclusion.TRUNCATED_POLICY: 4}
    assert SavedTraces.find(file).audit().excluded == {Exclusion.TRUNCATED_POLICY: 4}


def test_a_changed_prompt_token_is_found_without_a_tokenizer(run, trace):
    root, reply = trace.nodes
    delta = root.delta.copy()
    delta[0] += 1
    dump_traces(run / "traces" / "a.jsonl", [replace(trace, nodes=(replace(root, delta=delta), reply))])
    assert set(broken(SavedTraces.find(run).audit())) == {"I7"}


def test_prompts_are_rendered_again_where_a_family_is_given(run, trace, family):
    dump_traces(run / "traces" / "a.jsonl", [trace, replace(trace, trajectory="t1", policy="other")])
    saved = SavedTraces.find(run)
    report = saved.audit({"main": family})
    assert (report.ok, report.looked_at) == (True, {"I6": 1, "I14": 2})
    assert "policy 'other'" in report.unchecked["I6"]
    report = saved.audit({"*": family})
    assert (report.ok, report.looked_at, list(report.unchecked)) == (True, {"I6": 2, "I14": 2}, ["I3"])
    root, reply = trace.nodes
    said = Message(role="user", content="Stop.")
    dump_traces(run / "traces" / "a.jsonl", [replace(trace, nodes=(replace(root, messages=(said,)), reply))])
    assert broken(saved.audit({"main": family})) == ["I6"]
    assert saved.audit().ok


def test_a_line_that_was_cut_is_named_and_the_others_are_audited(run, trace):
    line = trace.dump()
    (run / "traces" / "a.jsonl").write_bytes(line + b"\n" + line[:-9] + b"\n" + line.replace(b'"t0"', b'"t1"') + b"\n")
    report = SavedTraces.find(run).audit()
    assert (report.traces, broken(report), report.violations[0].trajectory) == (2, ["I14"], "a.jsonl:2")


def test_a_line_that_another_writer_spelt_is_not_byte_exact(run, trace):
    (run / "traces" / "a.jsonl").write_bytes(json.dumps(json.loads(trace.dump())).encode() + b"\n")
    assert broken(SavedTraces.find(run).audit()) == ["I14"]


def test_a_trajectory_in_two_batches_is_trained_twice_but_evaluations_repeat(run, trace):
    dump_traces(run / "traces" / "eval-000000-Guess-v0.jsonl", [trace])
    dump_traces(run / "traces" / "eval-000005-Guess-v0.jsonl", [trace])
    assert SavedTraces.find(run).audit().ok
    dump_traces(run / "traces" / "step-000001.jsonl", [trace])
    dump_traces(run / "traces" / "step-000002.jsonl", [trace])
    report = SavedTraces.find(run).audit()
    assert broken(report) == ["I2"]
    assert "step-000002.jsonl:1 repeats the trajectory of step-000001.jsonl:1" in report.violations[0].detail


def test_what_holds_no_traces_says_what_to_give(run):
    with pytest.raises(ConfigError, match=r"holds no traces/\*\.jsonl"):
        SavedTraces.find(run)
    with pytest.raises(ConfigError, match="give a trace file"):
        SavedTraces.find(run / "nothing")


def test_a_damaged_recipe_is_refused(run, trace):
    dump_traces(run / "traces" / "a.jsonl", [trace])
    (run / "recipe.json").write_text('{"ledger": {"record": {"truncated": "sometimes"}}}')
    with pytest.raises(ConfigError, match=r"(?s)ledger settings .*truncated"):
        SavedTraces.find(run)


def test_traces_of_an_older_format_need_not_return_byte_for_byte(run):
    """They are written in the new format. The recorded one has an image that no ids stand for, which I13 finds."""
    recorded = Path(__file__).parent / "recorded" / "trace-v1.jsonl"
    file = run / "traces" / "step-000001.jsonl"
    file.write_bytes(recorded.read_bytes())
    report = SavedTraces.find(file).audit()
    assert broken(report) == ["I13"]
    assert report.sampled_tokens == 5
