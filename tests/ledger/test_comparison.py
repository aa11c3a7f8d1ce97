from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agar.ledger.comparison import Comparison
from agar.ledger.node import Divergence, Edge, Node
from agar.types import Finish, Message, Sampled, Sampling, Turn

DEPTH = 3
SAMPLED = Sampled.restore(token_ids=[1], logprobs=[-1.0], policy_versions=[0], finish=Finish.STOP)


def node(number):
    return Node(
        id=number,
        parent=number - 1 if number else None,
        edge=Edge.EXTEND if number else Edge.FIRST,
        messages=(Message(role="user", content=f"ask {number}"),),
        tools=(),
        delta=np.array([1], np.int32),
        prompt_digest="",
        sampled=SAMPLED,
        turn=Turn(text=f"reply {number}", reasoning="hm"),
        sampling=Sampling(),
    )


NODES = [node(number) for number in range(DEPTH)]
ASKED = [
    (at.messages[0], replace(at.messages[0]), replace(at.messages[0], content=f"{at.messages[0].content} "))
    for at in NODES
]
SAID = [
    (whole, replace(whole, reasoning=None), replace(whole, content=f"{whole.content}\n"), replace(whole, reasoning="!"))
    for whole in (at.turn.message() for at in NODES)
]
# Mostly the same objects again, so that histories go on from each other.
CHOICES = st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from([0, 0, 0, 0, 1, 2, 3]), st.booleans())
HISTORIES = st.tuples(st.integers(1, DEPTH), st.lists(CHOICES, min_size=DEPTH, max_size=DEPTH))


@given(st.lists(HISTORIES, max_size=8))
def test_what_was_compared_before_makes_no_difference(histories):
    comparison = Comparison()
    for depth, choices in histories:
        sent = [m for at, (ask, said, _) in enumerate(choices[:depth]) for m in (ASKED[at][ask], SAID[at][said])]
        respelled = frozenset(2 * at + 1 for at, (_, _, spelt) in enumerate(choices[:depth]) if spelt)
        path = NODES[:depth][::-1]
        assert comparison.against(path, tuple(sent), respelled) == Comparison().against(path, tuple(sent), respelled)


def test_what_differs_is_told_in_the_order_of_the_messages():
    said = [replace(at.turn.message(), content=f"{at.turn.text} ", reasoning=None) for at in NODES]
    sent = tuple(each for at in range(DEPTH) for each in (ASKED[at][2], said[at]))
    found = Comparison().against(NODES[::-1], sent, frozenset())
    one = [Divergence.WHITESPACE, Divergence.REASONING_DROPPED, Divergence.WHITESPACE]
    assert [each.kind for each in found] == one * DEPTH
    assert [each.message for each in found] == [0, 1, 1, 2, 3, 3, 4, 5, 5]
