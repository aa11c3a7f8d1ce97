import numpy as np
import pytest

from agar.errors import LedgerError
from agar.ledger.config import RecordPolicy
from agar.ledger.forest import Forest
from agar.ledger.node import Divergence, Edge
from agar.ledger.toy import hash_logprobs
from agar.types import Finish, Message, Sampled, Sampling, ToolCall, ToolSpec

SH = ToolSpec(name="sh", description="Run.")
SYSTEM = Message(role="system", content="Be brief.")
START = Message(role="user", content="Start.")
CALLS = (
    ToolCall(id="a", name="sh", arguments={"command": "cat 1", "n": 1}),
    ToolCall(id="b", name="sh", arguments={"command": "cat 2"}),
)
REPLY = Message(role="assistant", content="Two.", tool_calls=CALLS, reasoning="hm")
RESULTS = (
    Message(role="tool", content="one", tool_call_id="a"),
    Message(role="tool", content="two", tool_call_id="b"),
)


def say(forest, family, sent, reply, *, tools=(), respelled=frozenset(), finish=Finish.STOP):
    """One call: plan, sample `reply` on the planned prompt, commit."""
    plan = forest.plan(sent, tools, respelled=respelled)
    ids, mask = family.transcript([reply])
    ids = ids[mask] if finish is Finish.STOP else ids[mask][:-1]
    sampled = Sampled.restore(
        token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), policy_versions=np.zeros(len(ids)), finish=finish
    )
    turn = family.parse(ids)
    turn = type(turn)(text=turn.text, reasoning=turn.reasoning, tool_calls=reply.tool_calls, finish=finish)
    return forest.commit(plan, sampled, turn, sampling=Sampling())


def kinds(forest):
    return [d.kind for d in forest.differences]


def test_next_prompt_is_stored_ids_plus_bridge(family):
    forest = Forest(family)
    first = say(forest, family, [SYSTEM, START], REPLY, tools=[SH])
    plan = forest.plan([SYSTEM, START, REPLY, *RESULTS], [SH])
    assert (plan.parent, plan.edge) == (0, Edge.EXTEND)
    kept = np.concatenate([first.delta, first.sampled.token_ids])
    assert plan.prompt[: len(kept)].tolist() == kept.tolist()
    assert plan.prompt[len(kept) :].tolist() == family.bridge(kept, Finish.STOP, RESULTS).tolist()
    assert plan.prompt.tolist() == family.render([SYSTEM, START, REPLY, *RESULTS], [SH]).tolist()
    assert plan.differences == ()


def test_ids_that_no_tokenizer_would_give_survive_in_the_next_prompt(family):
    forest = Forest(family)
    plan = forest.plan([START])
    split = [family.tokenizer.encode(c)[0] for c in "look"]  # one letter a token: never the canonical encoding
    assert family.tokenizer.encode("look").tolist() != split
    ids = np.array([*split, family.stop_ids[0]], np.int32)
    sampled = Sampled.restore(
        token_ids=ids, logprobs=np.zeros(len(ids)), policy_versions=np.zeros(len(ids)), finish=Finish.STOP
    )
    forest.commit(plan, sampled, family.parse(ids), sampling=Sampling())
    following = forest.plan([START, Message(role="assistant", content="look"), START])
    assert following.prompt[len(plan.prompt) :][: len(ids)].tolist() == ids.tolist()


def changed(message, **fields):
    values = {name: getattr(message, name) for name in ("role", "content", "tool_calls", "tool_call_id", "reasoning")}
    return Message(**(values | fields))


@pytest.mark.parametrize(
    ("sent", "respelled", "kind"),
    [
        (changed(REPLY, reasoning=None), frozenset(), Divergence.REASONING_DROPPED),
        (changed(REPLY, content="Two. \n"), frozenset(), Divergence.WHITESPACE),
        (REPLY, frozenset({2}), Divergence.ARGUMENTS_RESPELLED),
        (
            changed(REPLY, tool_calls=(ToolCall(id="a", name="sh", arguments={"n": 1, "command": "cat 1"}), CALLS[1])),
            frozenset(),
            Divergence.ARGUMENTS_RESPELLED,
        ),
        (
            changed(
                REPLY, tool_calls=(ToolCall(id="a", name="sh", arguments={"command": "cat 1", "n": 1.0}), CALLS[1])
            ),
            frozenset(),
            Divergence.ARGUMENTS_RESPELLED,
        ),
        (
            changed(REPLY, tool_calls=(ToolCall(id="z", name="sh", arguments=CALLS[0].arguments), CALLS[1])),
            frozenset(),
            Divergence.CALL_IDS,
        ),
    ],
    ids=["no reasoning", "white space", "respelt", "keys reordered", "1 as 1.0", "other call id"],
)
def test_canonical_matching_extends_and_records_the_difference(family, sent, respelled, kind):
    forest = Forest(family)
    say(forest, family, [SYSTEM, START], REPLY, tools=[SH])
    node = say(
        forest,
        family,
        [SYSTEM, START, sent, *RESULTS],
        Message(role="assistant", content="x"),
        tools=[SH],
        respelled=respelled,
    )
    assert node.edge is Edge.EXTEND
    assert kinds(forest) == [kind]
    strict = Forest(family, RecordPolicy(match="strict"))
    say(strict, family, [SYSTEM, START], REPLY, tools=[SH])
    assert strict.plan([SYSTEM, START, sent, *RESULTS], [SH], respelled=respelled).parent is None


def test_an_equal_history_matches_strictly_too(family):
    strict = Forest(family, RecordPolicy(match="strict"))
    say(strict, family, [SYSTEM, START], REPLY, tools=[SH])
    assert strict.plan([SYSTEM, START, REPLY, *RESULTS], [SH]).parent == 0


@pytest.mark.parametrize(
    "other",
    [
        changed(REPLY, content="Three."),
        changed(REPLY, reasoning="other"),
        changed(REPLY, tool_calls=CALLS[:1]),
        changed(REPLY, tool_calls=(ToolCall(id="a", name="sh", arguments={"command": "cat 1", "n": True}), CALLS[1])),
    ],
    ids=["text", "reasoning", "a call less", "true for 1"],
)
def test_an_edited_reply_is_another_history(family, other):
    forest = Forest(family)
    say(forest, family, [SYSTEM, START], REPLY, tools=[SH])
    plan = forest.plan([SYSTEM, START, other, *RESULTS], [SH])
    assert (plan.parent, plan.edge) == (None, Edge.REWRITTEN)
    assert [d.kind for d in plan.differences] == [Divergence.FOREIGN_REPLY]


def test_parallel_results_match_as_a_multiset(family):
    forest = Forest(family)
    done = Message(role="assistant", content="Done.")
    say(forest, family, [START], REPLY)
    say(forest, family, [START, REPLY, *RESULTS], done)
    node = say(forest, family, [START, REPLY, *RESULTS[::-1], done, START], done)
    assert (node.parent, node.edge) == (1, Edge.EXTEND)
    assert set(kinds(forest)) == {Divergence.RESULT_ORDER}
    assert forest.plan([START, REPLY, RESULTS[0], RESULTS[0], done, START]).parent == 0


def test_a_history_that_diverges_later_continues_the_longest_recorded_path(family):
    forest = Forest(family)
    done = Message(role="assistant", content="Done.")
    say(forest, family, [START], REPLY)
    say(forest, family, [START, REPLY, *RESULTS], done)
    plan = forest.plan([START, REPLY, *RESULTS, Message(role="assistant", content="Edited."), START])
    assert (plan.parent, plan.edge) == (0, Edge.BRANCH)
    assert [m.role for m in plan.messages] == ["tool", "tool", "assistant", "user"]
    assert [d.kind for d in plan.differences] == [Divergence.FOREIGN_REPLY]


def test_roots_say_why_they_are_roots(family):
    forest = Forest(family)
    assert say(forest, family, [SYSTEM, START], REPLY).edge is Edge.FIRST
    assert forest.plan([Message(role="user", content="Other.")]).edge is Edge.UNRELATED
    assert forest.plan([SYSTEM, START], [SH]).edge is Edge.UNRELATED
    assert forest.plan([SYSTEM, Message(role="user", content="Summary.")]).edge is Edge.REWRITTEN


def test_a_family_that_cannot_extend_starts_a_new_root(family):
    class Capture:
        name, stop_ids = "capture", family.stop_ids
        render, parse, transcript = family.render, family.parse, family.transcript

        def bridge(self, previous_ids, finish, new_messages):
            return None

    forest = Forest(Capture())
    say(forest, family, [START], REPLY)
    node = say(forest, family, [START, REPLY, *RESULTS], REPLY)
    assert (node.parent, node.edge) == (None, Edge.UNBRIDGED)
    assert node.delta.tolist() == family.render([START, REPLY, *RESULTS]).tolist()


def test_equal_replies_are_told_apart_by_call_id(family):
    """Two samplings of one question gave the same words; the caller goes on from the first."""
    forest = Forest(family)
    again = changed(REPLY, tool_calls=tuple(ToolCall(id=c.id * 2, name=c.name, arguments=c.arguments) for c in CALLS))
    say(forest, family, [START], REPLY)
    say(forest, family, [START], again)
    assert forest.plan([START, REPLY, *RESULTS]).parent == 0
    assert forest.plan([START, again, *RESULTS]).parent == 1


def test_a_reply_cut_by_length_is_closed_in_the_next_delta(family):
    forest = Forest(family)
    cut = Message(role="assistant", content="Half a")
    node = say(forest, family, [START], cut, finish=Finish.LENGTH)
    assert node.sampled.token_ids[-1] not in family.stop_ids
    plan = forest.plan([START, cut, START])
    assert plan.delta[0] == family.stop_ids[0]
    assert plan.prompt.tolist() == family.render([START, cut, START]).tolist()


def test_on_divergence_fork_and_error(family):
    dropped = changed(REPLY, reasoning=None)
    fork = Forest(family, RecordPolicy(on_divergence="fork"))
    say(fork, family, [START], REPLY)
    assert fork.plan([START, dropped, *RESULTS]).parent is None
    as_sent = Forest(family, RecordPolicy(history="as_sent"))
    say(as_sent, family, [START], REPLY)
    assert (
        as_sent.plan([START, dropped, *RESULTS]).prompt.tolist() == family.render([START, dropped, *RESULTS]).tolist()
    )
    error = Forest(family, RecordPolicy(on_divergence="error"))
    say(error, family, [START], REPLY)
    with pytest.raises(LedgerError, match="reasoning_dropped"):
        error.plan([START, dropped, *RESULTS])


def test_a_difference_is_recorded_once_however_often_it_is_sent(family):
    forest = Forest(family)
    dropped = changed(REPLY, reasoning=None)
    done = Message(role="assistant", content="Done.")
    say(forest, family, [START], REPLY)
    history = [START, dropped, *RESULTS]
    for _ in range(3):
        say(forest, family, history, done)
        history = [*history, done, START]
    assert kinds(forest) == [Divergence.REASONING_DROPPED]


def test_result_does_not_depend_on_arrival_order(family):
    """Two sub-agents: whichever commits first, the same paths with the same ids come out."""

    def record(order):
        forest = Forest(family)
        histories = {name: [Message(role="user", content=name)] for name in order}
        for _ in range(2):
            plans = {name: forest.plan(histories[name]) for name in order}
            for name in order:
                ids = np.array([50, 51, family.stop_ids[0]], np.int32)
                sampled = Sampled.restore(
                    token_ids=ids, logprobs=np.zeros(3), policy_versions=np.zeros(3), finish=Finish.STOP
                )
                node = forest.commit(plans[name], sampled, family.parse(ids), sampling=Sampling())
                histories[name] = [*histories[name], node.turn.message(), START]
        return sorted(forest.context(node.id).tolist() for node in forest.nodes)

    assert record(["left", "right"]) == record(["right", "left"])
