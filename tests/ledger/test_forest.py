import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import LedgerError
from agar.ledger.config import CanonicaliserConfig, RecordPolicy
from agar.ledger.forest import Forest
from agar.ledger.node import Divergence, Edge
from agar.ledger.toy import hash_logprobs
from agar.types import Finish, Message, Sampled, Sampling, ToolCall, ToolSpec, Turn

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
    plan = strict.plan([SYSTEM, START, sent, *RESULTS], [SH], respelled=respelled)
    assert (plan.parent, plan.edge) == (None, Edge.DIVERGED)
    assert [d.kind for d in plan.differences] == [kind, Divergence.RENDERED_AGAIN]


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


class Unbridged:
    """A family that renders and never bridges."""

    def __init__(self, family):
        self.render, self.parse, self.strips_reasoning = family.render, family.parse, family.strips_reasoning

    def bridge(self, previous_ids, finish, new_messages):
        return None


def test_sessions_share_nothing(family):
    one, other = Forest(family), Forest(family)
    for forest in (one, other):
        assert say(forest, family, [SYSTEM, START], REPLY).edge is Edge.FIRST
    say(one, family, [SYSTEM, START, REPLY, *RESULTS], REPLY)
    assert (len(one.nodes), len(other.nodes)) == (2, 1)


def test_a_family_that_cannot_extend_starts_a_new_root(family):
    forest = Forest(Unbridged(family))
    say(forest, family, [START], REPLY)
    sent = [START, changed(REPLY, reasoning=None), *RESULTS]  # rendered, it does not begin with what was sampled
    node = say(forest, family, sent, REPLY)
    assert (node.parent, node.edge) == (None, Edge.UNBRIDGED)
    assert node.delta.tolist() == family.render(sent).tolist()


def test_without_a_bridge_a_prompt_that_begins_with_what_was_sampled_hangs_there(family):
    forest = Forest(Unbridged(family))
    say(forest, family, [START], REPLY, tools=[SH])
    plan = forest.plan([START, REPLY, *RESULTS], [SH])
    assert (plan.parent, plan.edge, plan.messages) == (0, Edge.EXTEND, RESULTS)
    assert plan.prompt.tolist() == family.render([START, REPLY, *RESULTS], [SH]).tolist()
    assert plan.prompt[: -len(plan.delta)].tolist() == forest.context(0).tolist()


@pytest.mark.parametrize(("history", "edge"), [("as_sent", Edge.UNBRIDGED), ("as_sampled", Edge.EXTEND)])
def test_where_the_template_strips_reasoning_history_as_sent_starts_a_new_root(family, monkeypatch, history, edge):
    monkeypatch.setattr(family, "strips_reasoning", lambda new: any(m.role == "user" for m in new))
    forest = Forest(family, RecordPolicy(history=history))
    say(forest, family, [START], REPLY)
    assert forest.plan([START, REPLY, *RESULTS]).edge is Edge.EXTEND
    assert forest.plan([START, REPLY, *RESULTS, START]).edge is edge


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


@pytest.mark.parametrize("policy", [{"on_divergence": "fork"}, {"history": "as_sent"}, {"match": "strict"}])
def test_a_policy_that_goes_on_from_what_was_sent_says_what_differed(family, policy):
    dropped = changed(REPLY, reasoning=None)
    forest = Forest(family, RecordPolicy(**policy))
    say(forest, family, [START], REPLY)
    plan = forest.plan([START, dropped, *RESULTS])
    assert (plan.parent, plan.edge) == (None, Edge.DIVERGED)
    assert plan.prompt.tolist() == family.render([START, dropped, *RESULTS]).tolist()
    assert [(d.kind, d.node) for d in plan.differences] == [
        (Divergence.REASONING_DROPPED, 0),
        (Divergence.RENDERED_AGAIN, 0),
    ]


def test_as_sent_branches_off_where_the_history_was_still_the_same(family):
    forest = Forest(family, RecordPolicy(history="as_sent"))
    second = Message(role="assistant", content="Done.", reasoning="well")
    first = say(forest, family, [START], REPLY)
    say(forest, family, [START, REPLY, *RESULTS], second)
    plan = forest.plan([START, REPLY, *RESULTS, changed(second, reasoning=None), START])
    assert (plan.parent, plan.edge) == (0, Edge.BRANCH)
    kept = np.concatenate([first.delta, first.sampled.token_ids])
    assert plan.prompt[: len(kept)].tolist() == kept.tolist()
    sent = [START, REPLY, *RESULTS, changed(second, reasoning=None), START]
    assert plan.prompt.tolist() == family.render(sent).tolist()
    assert [(d.kind, d.node) for d in plan.differences] == [
        (Divergence.REASONING_DROPPED, 1),
        (Divergence.RENDERED_AGAIN, 1),
    ]


def test_as_sent_goes_on_from_the_root_that_was_sent_before(family):
    """A caller that drops reasoning once and then repeats itself: the second time it is the history kept."""
    forest = Forest(family, RecordPolicy(history="as_sent"))
    dropped, plain = changed(REPLY, reasoning=None), Message(role="assistant", content="Done.")
    say(forest, family, [START], REPLY)
    root = say(forest, family, [START, dropped, *RESULTS], plain)
    plan = forest.plan([START, dropped, *RESULTS, plain, START])
    assert (plan.parent, plan.edge, plan.differences) == (root.id, Edge.EXTEND, ())


def test_on_divergence_error_refuses_the_call(family):
    forest = Forest(family, RecordPolicy(on_divergence="error"))
    say(forest, family, [START], REPLY)
    with pytest.raises(LedgerError, match="reasoning_dropped"):
        forest.plan([START, changed(REPLY, reasoning=None), *RESULTS])
    assert forest.plan([START, REPLY, *RESULTS]).parent == 0


def test_a_recorded_reply_behind_a_summary_is_context_and_says_whose_it_is(family):
    """Compaction that keeps the newest turn: its tokens in the new prompt are rendered, not the sampled ones."""
    forest = Forest(family)
    done = Message(role="assistant", content="Done.")
    say(forest, family, [SYSTEM, START], REPLY)
    say(forest, family, [SYSTEM, START, REPLY, *RESULTS], done)
    summary = Message(role="user", content="So far: two.")
    invented = Message(role="assistant", content="I see.")
    plan = forest.plan([SYSTEM, summary, invented, START, done, START])
    assert (plan.parent, plan.edge) == (None, Edge.REWRITTEN)
    assert [(d.kind, d.node, d.message) for d in plan.differences] == [
        (Divergence.FOREIGN_REPLY, None, 2),
        (Divergence.RENDERED_AGAIN, 1, 4),
    ]


def stamped(number):
    return changed(SYSTEM, content="Be brief, whatever happens. " * 20 + f"Request {number:08x}. Now go.")


NONCE = CanonicaliserConfig(name="nonce", pattern=r"Request [0-9a-f]{8}\.")


@pytest.mark.parametrize("policy", [{}, {"match": "strict"}, {"on_divergence": "error"}, {"history": "as_sent"}])
def test_a_declared_nonce_does_not_count_and_the_first_text_is_kept(family, policy):
    forest = Forest(family, RecordPolicy(canonicalisers=(NONCE,), **policy))
    history = [START]
    for number in range(4):
        say(forest, family, [stamped(number), *history], REPLY, tools=[SH])
        history += [REPLY, *RESULTS]
    assert [node.edge for node in forest.nodes] == [Edge.FIRST, Edge.EXTEND, Edge.EXTEND, Edge.EXTEND]
    assert kinds(forest) == [Divergence.DECLARED] * 3
    assert ["00000000" in d.kept and f"{n:08x}" in d.sent for n, d in enumerate(forest.differences, 1)] == [True] * 3
    start = family.render([stamped(0), START], [SH])
    assert forest.context(3)[: len(start)].tolist() == start.tolist()


def test_an_undeclared_nonce_makes_every_call_a_root(family):
    forest = Forest(family)
    say(forest, family, [stamped(0), START], REPLY)
    assert forest.plan([stamped(1), START, REPLY, *RESULTS]).edge is Edge.UNRELATED


def test_what_is_not_declared_still_counts_beside_it(family):
    forest = Forest(family, RecordPolicy(canonicalisers=(NONCE,)))
    say(forest, family, [stamped(0), START], REPLY)
    other = changed(stamped(1), content=stamped(1).text + " Now!")
    assert forest.plan([other, START, REPLY, *RESULTS]).parent is None
    say(forest, family, [stamped(1), START, changed(REPLY, reasoning=None), *RESULTS], REPLY)
    assert set(kinds(forest)) == {Divergence.DECLARED, Divergence.REASONING_DROPPED}


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


class Talk:
    """A conversation that goes on by itself; what it gets depends on its own name only."""

    def __init__(self, name, opening, turns):
        self.name, self.history, self.turns, self.plan = name, [Message(role="user", content=opening)], turns, None

    def step(self, forest, family):
        """Plan the next call, or commit the one that was planned; True while there is more to do."""
        if self.plan is None:
            self.plan = forest.plan(self.history)
            return True
        reply = Message(role="assistant", content=f"{self.name} {len(self.history)}")
        ids, mask = family.transcript([reply])
        sampled = Sampled.restore(
            token_ids=ids[mask],
            logprobs=hash_logprobs(self.plan.prompt, ids[mask]),
            policy_versions=np.zeros(int(mask.sum())),
            finish=Finish.STOP,
        )
        node = forest.commit(self.plan, sampled, family.parse(ids[mask]), sampling=Sampling())
        self.history = [*self.history, node.turn.message(), START]
        self.plan = None
        self.turns -= 1
        return self.turns > 0


def recorded(family, talks, order):
    """Every node's tokens with its parent's, and what was noticed; in no order."""
    forest, running = Forest(family), [Talk(*talk) for talk in talks]
    for pick in [*order, *range(100)]:
        if not running:
            break
        talk = running[pick % len(running)]
        if not talk.step(forest, family):
            running.remove(talk)
    assert not running
    tokens = [tuple(forest.context(node.id).tolist()) for node in forest.nodes]
    edges = [(tokens[node.id], None if node.parent is None else tokens[node.parent]) for node in forest.nodes]
    return sorted(edges, key=repr), sorted((d.kind, d.sent) for d in forest.differences)


@given(st.data())
def test_result_does_not_depend_on_arrival_order(family, data):
    """I7. Parallel conversations, some with one opening: whatever the interleaving, the same forest comes out."""
    openings = data.draw(st.lists(st.sampled_from(["left", "right"]), min_size=2, max_size=4))
    turns = data.draw(st.lists(st.integers(1, 3), min_size=4, max_size=4))
    talks = [(f"{index}", opening, turns[index]) for index, opening in enumerate(openings)]
    order = data.draw(st.lists(st.integers(0, 11), max_size=24))
    assert recorded(family, talks, order) == recorded(family, talks, [])


MORE = (
    (),
    RESULTS,
    RESULTS[::-1],
    RESULTS[:1],
    (START,),
    (*RESULTS, Message(role="assistant", content="Foreign."), START),
)
SAID = (REPLY, changed(REPLY, tool_calls=()), Message(role="assistant", content="Done."))
STEPS = st.tuples(
    st.integers(0, 9),  # the conversation that goes on; the newest mostly
    st.sampled_from(["same", "same", "same", "equal", "reasoning", "space", "ids", "keys", "text", "retry", "new"]),
    st.sampled_from([1, 1, 1, 2]),  # replies to the call
    st.sampled_from(MORE),
    st.sampled_from(SAID),
    st.booleans(),  # whether its arguments were respelled
    st.booleans(),  # whether tools are offered
)
RECORDING = st.builds(
    RecordPolicy,
    history=st.sampled_from(["as_sampled", "as_sampled", "as_sent"]),
    match=st.sampled_from(["canonical", "canonical", "strict"]),
    on_divergence=st.sampled_from(["record", "record", "fork", "error"]),
    canonicalisers=st.sampled_from([(), (), (NONCE,)]),
)


def sent_back(message, how):
    """A reply as a caller sends it."""
    if how == "equal":
        return changed(message, tool_calls=tuple(map(copied, message.tool_calls)))
    if how == "reasoning":
        return changed(message, reasoning=None)
    if how in {"space", "text"}:
        return changed(message, content=message.content + (" " if how == "space" else "!"))
    if how == "ids":
        calls = tuple(ToolCall(id=f"x{c.id}", name=c.name, arguments=c.arguments) for c in message.tool_calls)
        return changed(message, tool_calls=calls)
    if how == "keys":
        return changed(message, tool_calls=tuple(copied(call, backwards=True) for call in message.tool_calls))
    return message


def copied(call, *, backwards=False):
    items = list(call.arguments.items())
    return ToolCall(id=call.id, name=call.name, arguments=dict(items[::-1] if backwards else items))


def played(family, policy, steps, of_a_call):
    """What a session records whose every message passes `of_a_call` on its way in."""
    forest, refused = Forest(family, policy), []
    conversations, offers = [([SYSTEM, START], [SH])], ([], [SH])
    for which, how, choices, more, reply, respelt, offered in steps:
        history, tools = conversations[-1 if which > 3 else which % len(conversations)]
        if how == "new":
            history, tools = [stamped(which), START], offers[offered]
        elif how != "retry" and history[-1].role == "assistant":
            history = [*history[:-1], sent_back(history[-1], how), *more]
        respelled = frozenset({len(history) - 1 - len(more)} if respelt and how not in {"retry", "new"} else ())
        try:
            plan = forest.plan([of_a_call(m) for m in history], tools, respelled=respelled)
        except LedgerError as error:
            refused.append(str(error))
            continue
        ids, mask = family.transcript([reply])
        ids = ids[mask]
        sampled = Sampled.restore(
            token_ids=ids, logprobs=np.zeros(len(ids)), policy_versions=np.zeros(len(ids)), finish=Finish.STOP
        )
        for choice in range(choices):
            number = len(forest.nodes)
            calls = tuple(ToolCall(id=f"{number}{c.id}", name=c.name, arguments=c.arguments) for c in reply.tool_calls)
            turn = Turn(text=reply.text, reasoning=reply.reasoning, tool_calls=calls)
            node = forest.commit(plan, sampled, turn, sampling=Sampling(), choice=choice)
            conversations.append(([*history, node.turn.message()], tools))
    return forest, refused


def anew(message):
    """An equal message of which nothing is the same object."""
    return changed(message, tool_calls=tuple(map(copied, message.tool_calls)))


@given(RECORDING, st.lists(STEPS, min_size=2, max_size=9))
def test_messages_that_are_known_by_themselves_are_recorded_like_equal_ones(family, policy, steps):
    """A call that goes on from a leaf is not searched for; the search gives the same."""
    (known, refused), (searched, refused_too) = (played(family, policy, steps, each) for each in (lambda m: m, anew))
    assert refused == refused_too
    assert known.differences == searched.differences
    for one, other in zip(known.nodes, searched.nodes, strict=True):
        for name in ("parent", "edge", "messages", "tools", "prompt_digest", "choice"):
            assert getattr(one, name) == getattr(other, name)
        assert one.delta.tolist() == other.delta.tolist()
        assert known.context(one.id).tolist() == searched.context(one.id).tolist()


def test_a_conversation_that_only_goes_on_is_never_searched_for(family, monkeypatch):
    forest = Forest(family)
    history = [SYSTEM, START]
    say(forest, family, history, REPLY, tools=(tools := (SH,)))
    monkeypatch.setattr(forest, "_searched", None)
    for sent in (REPLY, changed(REPLY, reasoning=None), changed(REPLY, content="Two. "), anew(REPLY)):
        history += [sent, *RESULTS]
        assert say(forest, family, history, REPLY, tools=tools).edge is Edge.EXTEND
    assert kinds(forest) == [Divergence.REASONING_DROPPED, Divergence.WHITESPACE]
