import numpy as np
import pytest

from agar.errors import LedgerError
from agar.ledger.canonicalisers import Canonicaliser
from agar.ledger.config import CanonicaliserConfig
from agar.ledger.node import Edge, Node
from agar.ledger.paths import Paths
from agar.types import Finish, Message, Sampled, Sampling, Turn

ASK = Message(role="user", content="Start.")
SAMPLED = Sampled.restore(token_ids=[1], logprobs=[0.0], policy_versions=[0], finish=Finish.STOP)
PLAIN = Canonicaliser(())


def node(number, parent, text):
    return Node(
        id=number,
        parent=parent,
        edge=Edge.FIRST,
        messages=(ASK,),
        tools=(),
        delta=np.array([1], np.int32),
        prompt_digest="",
        sampled=SAMPLED,
        turn=Turn(text=text),
        sampling=Sampling(),
    )


def paths(*nodes):
    """Of nodes given as (parent, what the reply says)."""
    found = Paths(PLAIN)
    for number, (parent, text) in enumerate(nodes):
        found.add(node(number, parent, text))
    return found


def said(text):
    return Message(role="assistant", content=text)


@pytest.mark.parametrize(
    ("nodes", "alone"),
    [
        ([(None, "a")], [True]),
        ([(None, "a"), (0, "a"), (1, "b")], [True, True, True]),
        ([(None, "a"), (None, "a ")], [False, False]),
        ([(None, "a"), (None, "b")], [True, True]),
        ([(None, "a"), (0, "b"), (0, "b"), (1, "c"), (2, "c")], [True, False, False, False, False]),
        ([(None, "a"), (0, "b"), (1, "c"), (1, "d")], [True, True, True, True]),
    ],
    ids=["one", "a line", "twice the same", "two replies", "twice the same further on", "a fork"],
)
def test_a_node_is_alone_where_no_other_path_is_the_same(nodes, alone):
    recorded = paths(*nodes)
    assert [recorded.alone(number) for number in range(len(nodes))] == alone


def test_what_waited_is_found_by_its_history():
    recorded = paths((None, "a"), (0, "b"))
    walk = recorded.walk((ASK, said("a"), ASK, said("b\n"), ASK), ())
    assert [list(recorded.ending(state)) for state in walk.states] == [[], [0], [], [1]]
    assert recorded.reply(said("b ")) == 1
    assert recorded.reply(said("c")) is None


def test_nothing_is_found_where_nothing_is_recorded():
    assert not Paths(PLAIN).walk((ASK,), ()).states


def test_a_declared_rule_that_fails_fails_the_node_that_it_is_about():
    rule = CanonicaliserConfig(name="broken", function="math:sqrt", roles=("assistant",))
    recorded = Paths(Canonicaliser((rule,)))
    assert not recorded.walk((ASK,), ()).states
    with pytest.raises(LedgerError, match="broken"):
        recorded.add(node(0, None, "a"))
