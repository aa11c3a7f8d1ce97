"""Any session, under any record policy: the audit finds nothing, and the oracle agrees with every trained token.

Conversations are started, continued, forked, retried, compacted and sent back changed; replies are cut, aborted, drawn
under filters, of several versions, and come with side arrays. What the engine was given is kept apart from the record.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agar.errors import LedgerError
from agar.ledger.audit import audit
from agar.ledger.config import CanonicaliserConfig, RecordPolicy
from agar.ledger.emission import emission
from agar.ledger.forest import Forest
from agar.ledger.toy import hash_logprobs
from agar.ledger.trace import Trace
from agar.types import Finish, GroupId, Message, Outcome, Reward, Sampled, Sampling, TaskRow, ToolCall, ToolSpec

SH = ToolSpec(name="sh")
WORDS = st.sampled_from(["go", "look\n", "<|im_end|>", "é", ""])
POLICIES = st.builds(
    RecordPolicy,
    history=st.sampled_from(["as_sampled", "as_sent"]),
    match=st.sampled_from(["canonical", "strict"]),
    on_divergence=st.sampled_from(["record", "record", "fork", "error"]),
    canonicalisers=st.sampled_from([(), (CanonicaliserConfig(name="nonce", pattern=r"#\d"),)]),
    truncated=st.sampled_from(["close_masked", "exclude"]),
    abandoned=st.sampled_from(["exclude", "train"]),
    sampler=st.sampled_from(["neutral", "recorded"]),
    max_staleness=st.sampled_from([None, 0, 2]),
)
SAMPLERS = st.sampled_from([Sampling(), Sampling(), Sampling(top_p=0.5)])
CHANGES = st.sampled_from(["nothing", "nothing", "reasoning", "space", "ids", "text"])


@dataclass
class Session:
    """A program, its conversations, and the engine that it talks to."""

    family: object
    forest: Forest
    draw: object
    conversations: list[list[Message]] = field(default_factory=list)
    given: list[np.ndarray] = field(default_factory=list)

    def start(self):
        system = Message(role="system", content=f"Be brief. #{self.draw(st.integers(0, 9))}")
        self.ask([*([system] if self.draw(st.booleans()) else []), Message(role="user", content=self.draw(WORDS))])

    def go_on(self, *, again=False, compact=False):
        history = list(self.draw(st.sampled_from(self.conversations)))
        if history[0].role == "system" and self.draw(st.booleans()):
            history[0] = replace(history[0], content=f"Be brief. #{self.draw(st.integers(0, 9))}")
        if compact:
            history = [*history[:1], Message(role="assistant", content="So far."), history[-1]]
        if not again:
            history = [*map(self.changed, history)]
            results = [
                Message(role="tool", content=self.draw(WORDS), tool_call_id=call.id) for call in history[-1].tool_calls
            ]
            history += self.draw(st.permutations(results)) or [Message(role="user", content=self.draw(WORDS))]
        elif history[-1].role == "assistant":
            history.pop()
        self.ask(history)

    def changed(self, message):
        how = self.draw(CHANGES) if message.role == "assistant" else "nothing"
        if how == "reasoning":
            return replace(message, reasoning=None)
        if how in {"space", "text"}:
            return replace(message, content=f"{message.content}{' ' if how == 'space' else '!'}")
        if how == "ids":
            return replace(message, tool_calls=tuple(replace(call, id=f"x{call.id}") for call in message.tool_calls))
        return message

    def ask(self, history):
        try:
            plan = self.forest.plan(history, [SH])
        except LedgerError:
            return
        number = len(self.forest.nodes)
        calls = tuple(ToolCall(id=f"c{number}_{i}", name="sh") for i in range(self.draw(st.integers(0, 2))))
        said = Message(role="assistant", content=self.draw(WORDS), reasoning=self.draw(st.none() | WORDS))
        ids, mask = self.family.transcript([replace(said, tool_calls=calls)])
        finish = self.draw(st.sampled_from([*[Finish.STOP] * 4, Finish.LENGTH, Finish.ABORT]))
        ids = ids[mask] if finish is Finish.STOP else ids[mask][: self.draw(st.integers(0, 4))]
        begun, ended = sorted((self.draw(st.integers(0, 3)), self.draw(st.integers(0, 3))))
        versions = np.where(np.arange(len(ids)) < len(ids) // 2, begun, ended)
        experts = np.full((len(ids), 1, 2), number, np.int16)
        sampled = Sampled.restore(
            token_ids=ids, logprobs=hash_logprobs(plan.prompt, ids), policy_versions=versions, finish=finish,
            side={"routed_experts": experts} if self.draw(st.booleans()) else {},
        )  # fmt: skip
        turn = self.family.parse(ids)
        renamed = tuple(replace(call, id=f"c{number}_{i}") for i, call in enumerate(turn.tool_calls))
        node = self.forest.commit(
            plan, sampled, replace(turn, tool_calls=renamed, finish=finish), sampling=self.draw(SAMPLERS)
        )
        self.given.append(plan.prompt)
        self.conversations.append([*history, node.turn.message()])


@given(st.data(), POLICIES)
def test_any_session_under_any_policy_is_recorded_exactly(family, data, policy):
    session = Session(family, Forest(family, policy), data.draw)
    session.start()
    for _ in range(data.draw(st.integers(1, 7))):
        what = data.draw(st.sampled_from(["start", "on", "on", "on", "again", "compact"]))
        if what == "start" or not session.conversations:
            session.start()
        else:
            session.go_on(again=what == "again", compact=what == "compact")
    trace = Trace(
        trajectory="t", group=GroupId(task="k", ordinal=0), role="agent", policy="main", task=TaskRow(key="k"),
        nodes=tuple(session.forest.nodes), divergences=tuple(session.forest.differences), reward=Reward(total=1.0),
        outcome=Outcome.COMPLETED,
    )  # fmt: skip
    assert [trace.prompt(node.id).tolist() for node in trace.nodes] == [prompt.tolist() for prompt in session.given]
    result = emission(trace, policy, version=3)
    report = audit([trace], result.samples, policy, versions={"main": 3}, families={"main": family})
    report.raise_if_broken()
    assert report.looked_at == {"I6": 1, "I14": 1}
    for row in result.samples:
        oracle = hash_logprobs(np.empty(0, np.int32), row.token_ids)
        assert (row.logprobs == np.where(row.loss_mask, oracle, np.float32(0))).all()
    trained = sum(int(row.loss_mask.sum()) for row in result.samples)
    left_out = sum(run.stop - run.start for run in result.excluded)
    assert trained + left_out == sum(len(node.sampled) for node in trace.nodes)
