import numpy as np
import pytest

from agar.ledger.node import Edge, Node
from agar.ledger.prompts import Prompts
from agar.types import Finish, Message, Sampled, Sampling, Turn

ASK, AGAIN = Message(role="user", content="Start."), Message(role="user", content="Again.")


class Counting:
    """A family that writes a digit per message, and bridges where it is told to."""

    def __init__(self, bridge):
        self.renders, self._bridge = 0, bridge

    def render(self, messages, tools=()):
        self.renders += 1
        return np.array([len(m.text) for m in messages], np.int32)

    def bridge(self, previous_ids, finish, new_messages):
        return self._bridge

    def strips_reasoning(self, new_messages):
        return True


def node(reasoning):
    sampled = Sampled.restore(token_ids=[7], logprobs=[0.0], policy_versions=[0], finish=Finish.STOP)
    return Node(
        id=0,
        parent=None,
        edge=Edge.FIRST,
        messages=(ASK,),
        tools=(),
        delta=np.array([6], np.int32),
        prompt_digest="",
        sampled=sampled,
        turn=Turn(text="seven..", reasoning=reasoning),
        sampling=Sampling(),
    )


def following(prompts, reasoning, known):
    parent = node(reasoning)
    return prompts.following(parent, [parent], np.array(known), SENT, (), consumed=2)


SENT = (ASK, Message(role="assistant", content="seven.."), AGAIN)


def test_a_bridge_is_what_follows():
    family = Counting(np.array([1, 2], np.int32))
    found = following(Prompts(family, as_sent=False), "hm", [6, 7])
    assert found.tolist() == [1, 2]
    assert family.renders == 0


def test_without_a_bridge_what_follows_is_the_rest_of_a_whole_prompt_that_is_written_once():
    family = Counting(None)
    prompts = Prompts(family, as_sent=False)
    assert following(prompts, None, [6, 7]).tolist() == [6]
    assert prompts.whole(SENT, ()).tolist() == [6, 7, 6]
    assert family.renders == 1


@pytest.mark.parametrize("known", [[6, 8], [6, 7, 6], [6, 7, 6, 1]])
def test_a_whole_prompt_that_does_not_go_on_from_what_was_sampled_does_not_follow(known):
    assert following(Prompts(Counting(None), as_sent=False), None, known) is None


def test_history_as_sent_does_not_go_on_where_the_template_strips_reasoning():
    bridge = np.array([1], np.int32)
    as_sent = Prompts(Counting(bridge), as_sent=True)
    assert following(as_sent, "hm", [6, 7]) is None
    assert following(as_sent, None, [6, 7]) is bridge
