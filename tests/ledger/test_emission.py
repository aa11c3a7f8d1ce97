from dataclasses import replace

import numpy as np
import pytest

from agar.ledger.audit import audit
from agar.ledger.config import CanonicaliserConfig, RecordPolicy
from agar.ledger.emission import Exclusion, emission, emit
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, Source, TaskRow

ASK = Message(role="user", content="Start.")
MORE = Message(role="user", content="Go on.")


RULES = (CanonicaliserConfig(name="nonce", pattern=r"#\d+"),)


class Recording:
    """A forest and a shorthand for calls; replies are single made-up ids and a stop."""

    def __init__(self, family):
        self.family, self.forest = family, Forest(family, RecordPolicy(canonicalisers=RULES))

    def call(self, *history, reply=(60, 61), finish=Finish.STOP, version=0, sampling=None, choice=0, side=None):
        plan = self.forest.plan(history)
        ids = np.array([*reply, self.family.stop_ids[0]] if finish is Finish.STOP else reply, np.int32)
        sampled = Sampled.restore(
            token_ids=ids,
            logprobs=hash_logprobs(plan.prompt, ids),
            policy_versions=np.full(len(ids), version) if np.isscalar(version) else np.array(version),
            finish=finish,
            side=side,
        )
        node = self.forest.commit(plan, sampled, self.family.parse(ids), sampling=sampling or Sampling(), choice=choice)
        return node.turn.message()

    def trace(self, **fields):
        return Trace(
            **(
                {
                    "trajectory": "t0",
                    "group": GroupId(task="k", ordinal=0),
                    "role": "agent",
                    "policy": "main",
                    "task": TaskRow(key="k"),
                    "nodes": tuple(self.forest.nodes),
                    "divergences": tuple(self.forest.differences),
                    "reward": Reward(total=1.0),
                    "outcome": Outcome.COMPLETED,
                }
                | fields
            )
        )


@pytest.fixture
def recording(family):
    return Recording(family)


def test_a_conversation_gives_one_row_laid_out_by_hand(recording, family):
    first = recording.call(ASK)
    recording.call(ASK, first, MORE, reply=(70,))
    trace = recording.trace(turn_rewards={0: 0.25, 1: 0.5})
    (row,) = emit(trace)
    stop = family.stop_ids[0]
    prompt, bridge = trace.nodes[0].delta.tolist(), trace.nodes[1].delta.tolist()
    assert row.token_ids.tolist() == [*prompt, 60, 61, stop, *bridge, 70, stop]
    assert row.loss_mask.tolist() == [False] * len(prompt) + [True] * 3 + [False] * len(bridge) + [True] * 2
    assert (row.source[row.loss_mask] == Source.SAMPLED).all()
    assert row.logprobs[len(prompt) : len(prompt) + 3].tolist() == trace.nodes[0].sampled.logprobs.tolist()
    assert row.rewards.nonzero()[0].tolist() == [len(prompt) + 2, len(row.token_ids) - 1]
    assert row.rewards.sum() == 0.75
    assert (row.weight, row.reward, row.outcome) == (1.0, 1.0, Outcome.COMPLETED)
    assert emission(trace).excluded == ()


def test_a_fork_trains_the_shared_reply_once_and_weights_add_to_one(recording):
    first = recording.call(ASK)
    recording.call(ASK, first, MORE, reply=(70,))
    recording.call(ASK, first, ASK, reply=(71, 72, 73))
    left, right = emit(recording.trace())
    assert (int(left.loss_mask.sum()), int(right.loss_mask.sum())) == (3 + 2, 4)
    assert left.weight == pytest.approx(5 / 9)
    assert left.weight + right.weight == pytest.approx(1.0)


def test_sub_agents_give_a_row_each(recording):
    for name in ("left", "right"):
        recording.call(Message(role="user", content=name))
    assert len(emit(recording.trace())) == 2


def test_a_question_asked_again_abandons_the_first_reply(recording):
    recording.call(ASK, reply=(60,))
    used = recording.call(ASK, reply=(61,))
    recording.call(ASK, used, MORE, reply=(62,))
    trace = recording.trace()
    (row,) = emit(trace)
    assert 60 not in row.token_ids
    (left_out,) = emission(trace).excluded
    assert (left_out.node, left_out.reason) == (0, Exclusion.ABANDONED_RETRY)
    assert len(emit(trace, RecordPolicy(abandoned="train"))) == 2


def test_an_abandoned_reply_leaves_no_row_behind(recording):
    """The reply before it is trained in the row of the conversation that went on, not in one of its own."""
    first = recording.call(ASK, reply=(60,))
    recording.call(ASK, first, MORE, reply=(61,))
    recording.call(ASK, first, MORE, reply=(62,))
    trace = recording.trace()
    (row,) = emit(trace)
    assert [span[0] for span in row.meta["spans"]] == [0, 2]
    assert row.weight == 1.0
    assert audit([trace], [row]).ok


def test_a_row_ends_with_the_last_reply_that_it_trains(recording):
    first = recording.call(ASK, reply=(60,))
    recording.call(ASK, first, MORE, reply=(61,), finish=Finish.ABORT)
    trace = recording.trace()
    (row,) = emit(trace)
    assert [span[0] for span in row.meta["spans"]] == [0]
    assert row.loss_mask[-2:].all()
    assert audit([trace], [row]).ok


def test_a_question_asked_again_after_its_reply_was_used_is_a_fork(recording):
    used = recording.call(ASK, reply=(60,))
    recording.call(ASK, used, MORE)
    recording.call(ASK, reply=(61,))
    assert emission(recording.trace()).excluded == ()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"outcome": Outcome.INFRA_ERROR}, Exclusion.INFRA_FAILURE),
        ({"outcome": Outcome.CANCELLED}, Exclusion.INFRA_FAILURE),
        ({"trainable": False}, Exclusion.FROZEN_ROLE),
        ({"open_calls": 1}, Exclusion.QUARANTINED),
    ],
)
def test_a_whole_trace_is_left_out_with_its_reason(recording, fields, reason):
    recording.call(ASK)
    result = emission(recording.trace(**fields))
    assert result.samples == ()
    assert [(e.stop - e.start, e.reason) for e in result.excluded] == [(3, reason)]


def test_truncated_replies_are_trained_unless_the_policy_excludes_them(recording):
    cut = recording.call(ASK, finish=Finish.LENGTH)
    recording.call(ASK, cut, MORE)
    trace = recording.trace()
    (row,) = emit(trace)
    assert int(row.loss_mask.sum()) == 2 + 3  # the closer between them is not trained
    excluded = emission(trace, RecordPolicy(truncated="exclude"))
    assert int(excluded.samples[0].loss_mask.sum()) == 3
    assert [e.reason for e in excluded.excluded] == [Exclusion.TRUNCATED_POLICY]


def test_an_aborted_reply_is_never_trained(recording):
    recording.call(ASK, finish=Finish.ABORT)
    assert [e.reason for e in emission(recording.trace()).excluded] == [Exclusion.ABORTED]


def test_staleness_is_judged_per_token(recording):
    recording.call(ASK, version=[3, 4, 5])
    result = emission(recording.trace(), RecordPolicy(max_staleness=1), version=5)
    (row,) = result.samples
    assert row.policy_versions[row.loss_mask].tolist() == [4, 5]
    assert row.oldest_version == 4
    assert [(e.start, e.stop, e.reason) for e in result.excluded] == [(0, 1, Exclusion.STALE_WEIGHTS)]


def test_a_trace_survives_dump_and_load_byte_for_byte(recording):
    first = recording.call(ASK)
    recording.call(ASK, first, MORE)
    trace = recording.trace(turn_rewards={1: 0.1}, meta={"note": ["é", 1]}, reason="done")
    trace = replace(trace, task=TaskRow(key="k", payload={"answer": 29, "deep": {"a": [1.5, None]}}))
    line = trace.dump()
    again = Trace.load(line)
    assert again.dump() == line
    assert b"\n" not in line
    for before, after in zip(emit(trace), emit(again), strict=True):
        for name in ("token_ids", "loss_mask", "source", "logprobs", "policy_versions", "rewards"):
            assert getattr(before, name).tobytes() == getattr(after, name).tobytes()
        assert (before.weight, before.meta, before.group) == (after.weight, after.meta, after.group)


def test_replies_to_one_call_are_no_retries_of_each_other(recording):
    first = recording.call(ASK, reply=[60])
    for choice in range(3):
        recording.call(ASK, first, MORE, reply=[70 + choice], choice=choice)
    result = emission(recording.trace())
    assert result.excluded == ()
    assert [row.loss_mask.sum() for row in result.samples] == [4, 2, 2]
    for choice in range(2):  # the same question in another call
        recording.call(ASK, first, MORE, reply=[80 + choice], choice=choice)
    result = emission(recording.trace())
    assert [run.node for run in result.excluded] == [1, 2, 3]
    assert {run.reason for run in result.excluded} == {Exclusion.ABANDONED_RETRY}


def test_a_constrained_reply_is_trained_only_where_the_policy_says_so(recording):
    recording.call(ASK, sampling=Sampling(json_schema='{"type":"object"}'))
    assert [run.reason for run in emission(recording.trace()).excluded] == [Exclusion.CONSTRAINED]
    trained = emission(recording.trace(), RecordPolicy(sampler="recorded"))
    assert trained.excluded == ()
    assert trained.samples[0].meta["samplers"]["0"]["json_schema"] == '{"type":"object"}'


@pytest.mark.parametrize("order", [(60, 61), (61, 60)])
def test_of_two_calls_under_way_at_once_the_one_passed_over_is_abandoned(recording, order):
    """Whichever was recorded first: the caller had both, and went on from the reply that begins with 61."""
    replies = {token: recording.call(ASK, reply=(token, *b"abc"[: token - 59])) for token in order}
    recording.call(ASK, replies[61], MORE, reply=(62,))
    trace = recording.trace()
    result = emission(trace)
    assert [trace.nodes[run.node].sampled.token_ids[0] for run in result.excluded] == [60]
    (row,) = result.samples
    assert 61 in row.token_ids
    assert 60 not in row.token_ids


def test_a_question_asked_again_with_another_nonce_is_the_same_question(recording):
    for number in (1, 2):
        recording.call(Message(role="system", content=f"Be brief. #{number}"), ASK, reply=(60 + number,))
    trace = recording.trace()
    assert len(emission(trace).samples) == 2
    (run,) = emission(trace, RecordPolicy(canonicalisers=RULES)).excluded
    assert (run.node, run.reason) == (0, Exclusion.ABANDONED_RETRY)


@pytest.mark.parametrize("how", [{"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}, {"temperature": 0.0}])
def test_a_filtered_reply_is_trained_only_where_its_sampler_is_recorded(recording, how):
    first = recording.call(ASK, sampling=Sampling(temperature=0.5))
    recording.call(ASK, first, MORE, sampling=Sampling(**how))
    trace = recording.trace()
    assert [(run.node, run.reason) for run in emission(trace).excluded] == [(1, Exclusion.FILTERED)]
    result = emission(trace, RecordPolicy(sampler="recorded"))
    assert result.excluded == ()
    (row,) = result.samples
    (sampler,) = row.meta["samplers"].values()
    assert sampler.items() >= how.items()
    assert list(row.meta["samplers"]) == ["1"]


def test_side_arrays_stand_at_the_tokens_that_they_belong_to(recording):
    experts = np.arange(3 * 2 * 2, dtype=np.int16).reshape(3, 2, 2)
    first = recording.call(ASK, side={"routed_experts": experts, "images": np.array([[1, 2]], np.int32)})
    middle = recording.call(ASK, first, MORE)  # an engine that said nothing
    recording.call(ASK, first, MORE, middle, ASK, side={"images": np.array([[0, 1]], np.int32)})
    (row,) = emit(recording.trace())
    (_, start, _), _, (_, last, _) = row.meta["spans"]
    expected = np.full((len(row.token_ids), 2, 2), -1, np.int16)
    expected[start : start + 3] = experts
    assert row.side["routed_experts"].tolist() == expected.tolist()
    assert row.side["routed_experts"].dtype == np.int16
    delta = len(recording.forest.nodes[2].delta)
    assert row.side["images"].tolist() == [[1, 2], [last - delta, 1]]
    assert not row.side["images"].flags.writeable


def test_an_array_that_was_not_declared_or_changes_its_form_is_in_no_row(recording):
    wide, narrow = (np.zeros((3, 2, k), np.int16) for k in (2, 1))
    first = recording.call(ASK, side={"routed_experts": wide, "mood": np.zeros(3, np.float32)})
    recording.call(ASK, first, MORE, side={"routed_experts": narrow})
    (row,) = emit(recording.trace())
    assert dict(row.side) == {}
