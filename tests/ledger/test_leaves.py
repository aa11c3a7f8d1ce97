from dataclasses import replace

import numpy as np
import pytest

from agar.ledger.context import Context
from agar.ledger.leaves import Asked, Leaf, Leaves
from agar.ledger.node import Edge, Node
from agar.types import Finish, Message, Sampled, Sampling, ToolSpec, Turn

SYSTEM, ASK, AGAIN = Message(role="system"), Message(role="user", content="Start."), Message(role="user", content="Go.")
REPLY, RESULT = Message(role="assistant", content="Well."), Message(role="tool", content="1", tool_call_id="a")
SH = ToolSpec(name="sh")
TOOLS = (SH,)


def leaf(number=0, sent=(SYSTEM, ASK), tools=TOOLS):
    node = Node(
        id=number,
        parent=None,
        edge=Edge.FIRST,
        messages=sent,
        tools=tools,
        delta=np.array([1], np.int32),
        prompt_digest="",
        sampled=Sampled.restore(token_ids=[1], logprobs=[0.0], policy_versions=[0], finish=Finish.STOP),
        turn=Turn(text="Well."),
        sampling=Sampling(),
    )
    asked = Asked(sent=sent, tools=tools, respelled=frozenset())
    return Leaf(node=node, asked=asked, context=Context.of(np.array([number, 1], np.int32)))


def leaves(*some):
    found = Leaves()
    for each in some:
        found.add(each)
    return found


@pytest.mark.parametrize("new", [(), (RESULT,), (RESULT, RESULT), (RESULT, AGAIN)])
def test_a_leaf_is_found_before_its_reply_and_what_came_since(new):
    known = leaf()
    assert leaves(known).before((SYSTEM, ASK, REPLY, *new), TOOLS) is known
    assert leaves(known).before((SYSTEM, ASK, REPLY, *new), (SH,)) is known


@pytest.mark.parametrize(
    ("sent", "tools"),
    [
        ((ASK,), TOOLS),
        ((REPLY, ASK), TOOLS),
        ((SYSTEM, ASK), TOOLS),
        ((SYSTEM, replace(ASK), REPLY), TOOLS),
        ((replace(SYSTEM), ASK, REPLY), TOOLS),
        ((ASK, REPLY), TOOLS),
        ((SYSTEM, SYSTEM, ASK, REPLY), TOOLS),
        ((SYSTEM, ASK, REPLY, RESULT, REPLY), TOOLS),
        ((SYSTEM, ASK, REPLY), ()),
        ((SYSTEM, ASK, REPLY), (replace(SH),)),
    ],
)
def test_it_is_not_found_in_anything_else(sent, tools):
    assert leaves(leaf()).before(sent, tools) is None


def test_of_two_leaves_behind_one_message_the_newest_is_found_and_none_that_was_dropped():
    one, other, apart = leaf(0), leaf(1), leaf(2, sent=(SYSTEM, AGAIN))
    some = leaves(one, other, apart)
    assert some.before((SYSTEM, ASK, REPLY), TOOLS) is other
    assert some.before((SYSTEM, AGAIN, REPLY), TOOLS) is apart
    some.drop(0)
    assert some.before((SYSTEM, ASK, REPLY), TOOLS) is other
    some.drop(1)
    assert some.before((SYSTEM, ASK, REPLY), TOOLS) is None
    assert some.context(2) is apart.context
    assert some.context(1) is None
    some.drop(1)
