"""Several replies to a call, gone on from in any order, asked for again, and said in the same words."""

import asyncio
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agar.ledger.node import Node
from agar.ledger.toy import ToyEngine
from agar.rollout.gateway.call import ModelCall
from agar.rollout.gateway.server import Gateway
from agar.types import Message, Sampling

MORE = Message(role="user", content="Go on.")
STEPS = st.lists(
    st.tuples(
        st.integers(0, 20),  # the reply to go on from, of those so far; the first question where it is 0
        st.integers(1, 3),  # how many replies are wanted
        st.sampled_from(["ask", "ask", "repeat", "pass over"]),
        st.lists(st.sampled_from(["gold", "box 83", "gold"]), min_size=3, max_size=3),
    ),
    min_size=1,
    max_size=12,
)


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(steps=STEPS)
def test_every_reply_is_recorded_once_below_one_that_its_history_shows(family, trained, steps):
    said: list[str] = []
    engine = ToyEngine(lambda prompt: family.tokenizer.encode(said.pop() + "<|im_end|>", special=True))
    gateway = Gateway(engines={"main": engine}, families={"main": family})
    session = gateway.open(policy="main", sampling=Sampling(max_tokens=16))
    ends: list[tuple[Message, ...]] = [(Message(role="user", content="Start."),)]
    asked: list[ModelCall] = []

    async def play() -> None:
        for which, n, how, words in steps:
            said[:] = words
            if how == "repeat" and asked:
                before = len(session._forest.nodes)
                await session.call(asked[-1])
                assert len(session._forest.nodes) == before  # nothing was built upon it: the stored replies
                continue
            call = ModelCall(messages=ends[which % len(ends)], n=n, fingerprint=f"{len(asked)}".encode())
            reply = await session.call(call)
            asked.append(call)
            assert [choice.turn.text for choice in reply.choices] == words[::-1][:n]
            if how != "pass over":
                ends.extend((*call.messages, choice.turn.message(), MORE) for choice in reply.choices)

    with asyncio.Runner() as runner:
        runner.run(play())
    sealed = session.seal()
    sent = [call.messages for call in asked for _ in range(call.n)]
    assert len(sealed.nodes) == len(sent) == len(engine.prompts)
    for node, history in zip(sealed.nodes, sent, strict=True):
        assert [(message.role, message.text) for message in told_before(sealed.nodes, node)] == [
            (message.role, message.text) for message in history
        ]
        assert (node.parent is None) == (len(history) == 1)
    assert [node.choice for node in sealed.nodes] == [choice for call in asked for choice in range(call.n)]
    trained(sealed)


def told_before(nodes: Sequence[Node], node: Node) -> list[Message]:
    """The conversation that a node answers, from the record."""
    before = [] if node.parent is None else told_before(nodes, nodes[node.parent])
    said = [] if node.parent is None else [nodes[node.parent].turn.message()]
    return [*before, *said, *node.messages]
