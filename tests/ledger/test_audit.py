"""The audit must catch seeded defects: each test breaks one thing and expects the invariant that forbids it."""

from dataclasses import replace

import numpy as np
import pytest

from agar.errors import AuditError
from agar.ledger.audit import audit
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Exclusion, emit
from agar.ledger.forest import Forest
from agar.ledger.node import Difference, Divergence, Edge
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace, digest
from agar.types import (
    Finish,
    GroupId,
    ImagePart,
    Message,
    Outcome,
    Reward,
    Sampled,
    Sampling,
    Source,
    TaskRow,
    ToolCall,
    Turn,
)

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
    assert broken(audit([trace], [left, twice])) == {"I2", "I10"}  # and so its rows no longer weigh what they should


def test_i2_a_lost_row(trace):
    left, _ = emit(trace)
    assert {"I2", "I10"} <= broken(audit([trace], [left]))


def test_i2_a_token_dropped_without_a_reason(trace):
    left, right = emit(trace)
    at = trained(left)
    row = changed(changed(left, "loss_mask", at, False), "source", at, Source.CONTEXT)
    row = changed(changed(row, "logprobs", at, 0.0), "policy_versions", at, -1)
    assert broken(audit([trace], [row, right])) == {"I2", "I10"}


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


def test_i10_every_row_weighs_the_same(trace):
    """The weights still add to 1, but a token of the short row counts for more than one of the long row."""
    left, right = emit(trace)
    assert int(left.loss_mask.sum()) != int(right.loss_mask.sum())
    assert broken(audit([trace], [left.but(weight=0.5), right.but(weight=0.5)])) == {"I10"}


def test_i10_a_turn_reward_on_the_wrong_token(trace):
    left, right = emit(trace)
    at = int(np.flatnonzero(right.rewards)[0])
    for row in (changed(right, "rewards", at, 0.0), right.but(rewards=np.roll(right.rewards, -1))):
        assert broken(audit([trace], [left, row])) == {"I10"}


def altered(trace, index, **fields):
    nodes = list(trace.nodes)
    nodes[index] = replace(nodes[index], **fields)
    return replace(trace, nodes=tuple(nodes))


def with_prompts(trace):
    """The trace as a recorder with the same fault in both places would write it: digests follow what it rendered."""
    nodes = [replace(node, prompt_digest=digest(trace.prompt(node.id))) for node in trace.nodes]
    return replace(trace, nodes=tuple(nodes))


def test_i6_prompt_and_bridge_are_the_familys(trace, family):
    families = {"main": family}
    assert audit([trace], emit(trace), families=families).looked_at == {"I6": 1, "I14": 1}
    for index, what in ((0, "prompt"), (1, "bridge")):
        delta = trace.nodes[index].delta
        bad = with_prompts(altered(trace, index, delta=np.delete(delta, len(delta) - 2)))  # the last separator
        report = audit([bad], emit(bad), families=families)
        assert broken(report) == {"I6"}
        assert f"the {what} of node {index}" in report.violations[0].detail


def test_i6_a_control_token_from_a_tools_output(trace, family):
    """The text of a web page holds the mark of a turn's end, and was encoded as one."""
    page = Message(role="user", content="Start.<|im_end|>")
    ids = family.tokenizer.encode("<|im_end|>", special=True)
    at = int(np.flatnonzero(trace.nodes[0].delta == ids[0])[-1])
    bad = with_prompts(altered(trace, 0, messages=(page,), delta=np.insert(trace.nodes[0].delta, at, ids)))
    assert broken(audit([bad], emit(bad), families={"main": family})) == {"I6"}
    good = with_prompts(altered(trace, 0, messages=(page,), delta=family.render([page])))
    assert audit([good], emit(good), families={"main": family}).ok


def test_i6_says_where_it_could_not_look(trace, family):
    assert "policy 'main'" in audit([trace], emit(trace)).unchecked["I6"]
    report = audit([trace], emit(trace), families={"main": family}, closely=0)
    assert (report.looked_at, report.unchecked, report.ok) == ({}, {}, True)


class Capturing:
    """A family without bridges, over another one: what the generic path is."""

    name = "capturing"

    def __init__(self, family, *, strips):
        self._family, self._strips = family, strips

    def render(self, messages, tools=()):
        kept = [replace(m, content="") if self._strips and m.role == "assistant" else m for m in messages]
        return self._family.render(kept, tools)

    def bridge(self, previous_ids, finish, new_messages):
        return None


def test_i6_without_a_bridge_renders_the_whole_and_says_where_that_does_not_reach(trace, family):
    canonical = [*family.tokenizer.encode("cat").tolist(), family.stop_ids[0]]
    sampled = Sampled.restore(
        token_ids=canonical, logprobs=[-1.0] * len(canonical), policy_versions=[3] * len(canonical), finish=Finish.STOP
    )
    line = replace(trace, nodes=trace.nodes[:2], turn_rewards={})
    line = with_prompts(altered(line, 0, turn=Turn(text="cat"), sampled=sampled))
    for strips in (False, True):
        report = audit([line], emit(line), families={"main": Capturing(family, strips=strips)})
        assert report.ok
        assert ("I6" in report.unchecked) == strips
        assert report.looked_at.get("I6", 0) == (0 if strips else 1)
    assert "1 prompts of t0 are the capturing family's rendering" in report.unchecked["I6"]
    bad = with_prompts(altered(line, 1, delta=np.delete(line.nodes[1].delta, -2)))
    assert broken(audit([bad], emit(bad), families={"main": Capturing(family, strips=False)})) == {"I6"}


def test_only_some_trajectories_are_looked_at_closely_and_always_the_same_ones(trace, family):
    traces = [replace(trace, trajectory=f"t{index}") for index in range(8)]
    delta = trace.nodes[0].delta
    bad = [with_prompts(altered(each, 0, delta=np.delete(delta, len(delta) - 2))) for each in traces]
    rows = [row for each in bad for row in emit(each)]
    reports = [audit(bad, rows, families={"main": family}, closely=3) for _ in range(2)]
    assert [len(report.violations) for report in reports] == [3, 3]
    assert reports[0].violations == reports[1].violations
    assert reports[0].metrics()["ledger/looked_at_I6"] == 3.0


def test_i7_an_edge_that_does_not_fit_the_tree(trace):
    for index, edge in ((0, Edge.UNRELATED), (1, Edge.BRANCH), (2, Edge.EXTEND), (2, Edge.FIRST)):
        bad = altered(trace, index, edge=edge)
        assert broken(audit([bad], emit(bad))) == {"I7"}


def test_i8_one_reply_in_two_nodes(trace):
    call = ToolCall(id="call_1_0", name="sh")
    bad = trace
    for index in (1, 2):
        bad = altered(bad, index, turn=Turn(text="x", tool_calls=(call,)))
    assert broken(audit([bad], emit(bad))) == {"I8"}


def test_i9_an_unsampled_assistant_message_that_nobody_tells_of(trace, family):
    said = Message(role="assistant", content="I know: 29.")
    bad = with_prompts(altered(trace, 0, messages=(ASK, said, MORE), delta=family.render([ASK, said, MORE])))
    assert broken(audit([bad], emit(bad))) == {"I9"}
    told = Difference(kind=Divergence.FOREIGN_REPLY, node=None, message=1, kept="", sent=said.text)
    assert audit([replace(bad, divergences=(told,))], emit(bad)).ok
    nowhere = replace(trace, divergences=(replace(told, node=9),))
    assert broken(audit([nowhere], emit(nowhere))) == {"I9"}


def test_i12_rows_from_a_session_with_open_calls(trace):
    lost = replace(trace, open_calls=1)
    assert broken(audit([lost], emit(trace))) == {"I2", "I12"}


def test_i13_a_side_array_lost_shifted_or_out_of_layout(trace):
    reply = trace.nodes[0].sampled
    experts = np.arange(len(reply) * 4, dtype=np.int16).reshape(len(reply), 2, 2)

    def having(array):
        sampled = Sampled.restore(
            token_ids=reply.token_ids, logprobs=reply.logprobs, policy_versions=reply.policy_versions,
            finish=reply.finish, side={"routed_experts": array},
        )  # fmt: skip
        return altered(trace, 0, sampled=sampled)

    good = having(experts)
    left, right = emit(good)
    assert audit([good], [left, right]).ok
    assert broken(audit([good], [left.but(side={}), right])) == {"I13"}
    late = left.but(side={"routed_experts": np.roll(left.side["routed_experts"], 1, axis=0)})
    assert broken(audit([good], [late, right])) == {"I13"}
    short = left.but(side={"routed_experts": left.side["routed_experts"][1:]})
    assert broken(audit([good], [short, right])) == {"I13"}
    assert broken(audit([good], [left.but(side={**left.side, "mood": np.zeros(1)}), right])) == {"I13"}
    for bad in (having(experts[1:]), having(experts.astype(np.int64))):
        assert broken(audit([bad], emit(bad))) == {"I13"}


def test_i13_side_arrays_that_contradict_the_tokens(trace):
    left, right = emit(trace)
    kept = np.full((len(left.token_ids), 2), -1, np.int32)
    kept[trained(left)] = [left.token_ids[trained(left)], 9]
    assert audit([trace], [left.but(side={"kept_vocabulary": kept}), right]).ok
    kept[trained(left), 0] = 8
    report = audit([trace], [left.but(side={"kept_vocabulary": kept}), right])
    assert broken(report) == {"I13"}
    assert "lacks 1 tokens" in report.violations[0].detail
    images = np.array([[0, 1]], np.int32)
    assert audit([trace], [left.but(side={"images": images}), right]).ok
    images = np.array([[trained(left) - 1, 2]], np.int32)
    assert broken(audit([trace], [left.but(side={"images": images}), right])) == {"I13"}


def test_i13_an_image_without_its_placeholder(trace):
    """Two images were sent, and the ids hold a place for one of them, or a place that is text."""
    pixels = Message(role="user", content=(ImagePart(url="data:,a"), ImagePart(url="data:,b")))
    reply = trace.nodes[0].sampled

    def seen(runs, delta):
        sampled = Sampled.restore(
            token_ids=reply.token_ids, logprobs=reply.logprobs, policy_versions=reply.policy_versions,
            finish=reply.finish, side={"images": np.array(runs, np.int32)},
        )  # fmt: skip
        return with_prompts(altered(trace, 0, messages=(pixels,), delta=np.array(delta, np.int32), sampled=sampled))

    good = seen([[1, 1], [3, 1]], [5, 9, 6, 9, 7])
    assert audit([good], emit(good)).ok
    for bad in (seen([[1, 1]], [5, 9, 6, 9, 7]), seen([[1, 1], [2, 1]], [5, 9, 6, 9, 7])):
        assert broken(audit([bad], emit(bad))) == {"I13"}
    blind = altered(trace, 0, messages=(pixels,))
    assert broken(audit([blind], emit(blind))) == {"I13"}


def test_i14_a_trace_that_reads_back_as_something_else(trace, monkeypatch):
    rows = emit(trace)
    load = Trace.load.__func__

    def forgetful(cls, line):
        return replace(load(cls, line), turn_rewards={})

    monkeypatch.setattr(Trace, "load", classmethod(forgetful))
    assert broken(audit([trace], rows)) == {"I14"}


def test_i11_versions(trace):
    left, right = emit(trace)
    assert "I11" in broken(audit([trace], [changed(left, "policy_versions", trained(left), 4), right]))
    assert "I11" in broken(audit([trace], [changed(left, "policy_versions", 0, 3), right]))


def test_i11_tokens_beyond_the_staleness_bound_must_not_be_trained(trace):
    policy = RecordPolicy(max_staleness=1)
    assert "I2" in broken(audit([trace], emit(trace), policy, versions={"main": 5}))
    stale = audit([trace], emit(trace), policy, versions={"main": 5})
    assert "I11" in broken(stale)
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
