"""The audit must catch seeded defects: each test breaks one thing and expects the invariant that forbids it."""

from dataclasses import replace

import numpy as np
import pytest

from agar.errors import AuditError
from agar.ledger.audit import audit
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Exclusion, emit
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, Source, TaskRow

ASK, MORE, OTHER = (Message(role="user", content=text) for text in ("Start.", "Go on.", "Turn back."))


@pytest.fixture
def trace(family):
    """A fork: two replies built upon one."""
    forest = Forest(family)

    def call(*history, reply):
        plan = forest.plan(history)
        ids = np.array([*reply, family.stop_ids[0]], np.int32)
        sampled = Sampled.restore(
            token_ids=ids,
            logprobs=hash_logprobs(plan.prompt, ids),
            policy_versions=np.full(len(ids), 3),
            finish=Finish.STOP,
        )
        return forest.commit(plan, sampled, family.parse(ids), sampling=Sampling()).turn.message()

    first = call(ASK, reply=[int(family.tokenizer.encode(letter)[0]) for letter in "cat"])  # never canonical
    call(ASK, first, MORE, reply=(62,))
    call(ASK, first, OTHER, reply=(63, 64, 65))
    return Trace(
        trajectory="t0",
        group=GroupId(task="k", ordinal=0),
        role="agent",
        policy="main",
        task=TaskRow(key="k"),
        nodes=tuple(forest.nodes),
        turn_rewards={2: 1.0},
        reward=Reward(total=1.0),
        outcome=Outcome.COMPLETED,
    )


def broken(report):
    return {violation.invariant for violation in report.violations}


def changed(sample, name, index, value):
    array = np.array(getattr(sample, name))
    array[index] = value
    return sample.but(**{name: array})


def trained(sample):
    return int(np.flatnonzero(sample.loss_mask)[0])


def test_a_sound_batch_passes_and_is_counted(trace):
    report = audit([trace], emit(trace))
    assert report.ok
    assert (report.sampled_tokens, report.trained_tokens, report.samples) == (10, 10, 2)
    assert report.metrics()["ledger/samples_per_trace"] == 2.0
    report.check("strict")


def test_i1_a_changed_prefix(trace):
    left, right = emit(trace)
    assert "I1" in broken(audit([trace], [changed(left, "token_ids", 0, 9), right]))


def test_i1_a_lost_prefix_token(trace):
    """The classic: a separator is missing, every later token is trained on a prefix that no engine saw."""
    left, right = emit(trace)
    arrays = ("token_ids", "loss_mask", "source", "logprobs", "policy_versions", "rewards")
    cut = left.but(
        **{name: getattr(left, name)[1:] for name in arrays},
        meta={"spans": [[n, start - 1, length] for n, start, length in left.meta["spans"]]},
    )
    assert "I1" in broken(audit([trace], [cut, right]))


def test_i1_a_trained_context_token(trace):
    left, right = emit(trace)
    row = changed(changed(changed(left, "loss_mask", 0, True), "source", 0, Source.SAMPLED), "policy_versions", 0, 3)
    assert "I1" in broken(audit([trace], [row, right]))


def test_i1_rows_of_nowhere(trace):
    left, right = emit(trace)
    assert "I1" in broken(audit([trace], [left, right, left.but(trajectory="t9")]))


def test_i2_a_token_trained_twice(trace):
    left, right = emit(trace)
    node, start, length = right.meta["spans"][0]
    span = slice(start, start + length)
    twice = right
    for name in ("loss_mask", "source", "logprobs", "policy_versions"):
        twice = changed(twice, name, span, getattr(left, name)[span])
    assert node == 0
    assert broken(audit([trace], [left, twice])) == {"I2"}


def test_i2_a_lost_row(trace):
    left, _ = emit(trace)
    assert {"I2", "I10"} <= broken(audit([trace], [left]))


def test_i2_a_token_dropped_without_a_reason(trace):
    left, right = emit(trace)
    at = trained(left)
    row = changed(changed(left, "loss_mask", at, False), "source", at, Source.CONTEXT)
    row = changed(changed(row, "logprobs", at, 0.0), "policy_versions", at, -1)
    assert broken(audit([trace], [row, right])) == {"I2"}


def test_i2_training_what_the_policy_excludes(trace):
    lost = replace(trace, outcome=Outcome.INFRA_ERROR)
    report = audit([lost], emit(trace))
    assert "I2" in broken(report)
    assert report.excluded == {Exclusion.INFRA_FAILURE: 10}


def test_i3_a_logprob_one_bit_off(trace):
    left, right = emit(trace)
    at = trained(left)
    value = np.nextafter(left.logprobs[at], np.float32(-100))
    assert broken(audit([trace], [changed(left, "logprobs", at, value), right])) == {"I3"}


def test_i4_a_positive_logprob_and_one_where_nothing_is_trained(trace):
    left, right = emit(trace)
    assert "I4" in broken(audit([trace], [changed(left, "logprobs", trained(left), 0.5), right]))
    assert broken(audit([trace], [changed(left, "logprobs", 0, -0.5), right])) == {"I4"}


def test_i5_a_re_encoded_reply(trace, family):
    """The sampled text, encoded again: same text, other ids."""
    left, right = emit(trace)
    _, start, length = left.meta["spans"][0]
    again = family.tokenizer.encode(family.tokenizer.decode(left.token_ids[start : start + length - 1]))
    again = np.resize(again, length - 1)
    assert again.tolist() != left.token_ids[start : start + length - 1].tolist()
    row = changed(left, "token_ids", slice(start, start + length - 1), again)
    assert "I5" in broken(audit([trace], [row, right]))


def test_i7_a_prompt_that_is_not_the_one_the_engine_had(trace):
    nodes = list(trace.nodes)
    nodes[1] = replace(nodes[1], delta=nodes[1].delta[1:])
    bad = replace(trace, nodes=tuple(nodes))
    assert "I7" in broken(audit([bad], emit(bad)))


def test_i10_weights_rewards_and_groups(trace):
    left, right = emit(trace)
    for row in (left.but(weight=0.9), left.but(reward=2.0), left.but(group=GroupId(task="k", ordinal=1))):
        assert broken(audit([trace], [row, right])) == {"I10"}


def test_i11_versions(trace):
    left, right = emit(trace)
    assert "I11" in broken(audit([trace], [changed(left, "policy_versions", trained(left), 4), right]))
    assert "I11" in broken(audit([trace], [changed(left, "policy_versions", 0, 3), right]))


def test_i11_tokens_beyond_the_staleness_bound_must_not_be_trained(trace):
    policy = RecordPolicy(max_staleness=1)
    assert "I2" in broken(audit([trace], emit(trace), policy, versions={"main": 5}))
    assert audit([trace], emit(trace, policy, version=5), policy, versions={"main": 5}).ok
    assert audit([trace], emit(trace, policy, version=4), policy, versions={"main": 4}).ok


def test_turn_rewards_of_untrained_turns_are_counted(trace):
    lost = replace(trace, open_calls=1)
    assert audit([lost], emit(lost)).lost_turn_rewards == 1


def test_strict_refuses_and_warn_logs(trace, caplog):
    left, _ = emit(trace)
    report = audit([trace], [left])
    with pytest.raises(AuditError, match="I2 in t0"):
        report.check("strict")
    with pytest.raises(AuditError):
        report.raise_if_broken()
    report.check("off")
    assert caplog.records == []
    report.check("warn")
    assert "I2" in caplog.text
