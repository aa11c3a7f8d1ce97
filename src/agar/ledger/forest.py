"""The record of a session as it grows: paths of model calls, found again by the history that a caller sends.

`plan` answers what the next prompt is: the stored ids of the longest recorded path that the request continues, and
the bridge ids of its new messages only. `commit` appends what the engine sampled on exactly that prompt. Nothing in
here tokenises a reply.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agar.errors import LedgerError
from agar.ledger.canonical import Key
from agar.ledger.canonicalisers import canonicaliser_of
from agar.ledger.comparison import Comparison, thought, unsampled_replies
from agar.ledger.config import RecordPolicy
from agar.ledger.families.base import Family
from agar.ledger.node import Difference, Divergence, Edge, Node
from agar.ledger.prompts import Prompts
from agar.ledger.trace import digest
from agar.ledger.trie import Trie, Walk
from agar.types import Ids, Message, Sampled, Sampling, ToolSpec, Turn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What a request means for the record; nothing is recorded yet.

    Attributes:
        parent: the node it continues, or None for a new root.
        edge: why it hangs there.
        messages: the messages after the parent's reply.
        tools: the tools, for a root.
        delta: int32 [m], the ids after the parent's reply.
        prompt: int32 [n], what the engine must be given.
        differences: noticed between the history sent and the history kept.
    """

    parent: int | None
    edge: Edge
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    delta: Ids
    prompt: Ids
    differences: tuple[Difference, ...]
    state: int
    keys: tuple[Key, ...]


class Forest:
    """One session's model calls. Not thread-safe: it belongs to one event loop.

    Args:
        family: renders and bridges.
        policy: what counts as the same history.

    Attributes:
        nodes: committed calls; a node's id is its index.
        differences: noticed differences, each once.
    """

    def __init__(self, family: Family, policy: RecordPolicy | None = None) -> None:
        self._policy = policy or RecordPolicy()
        self._prompts = Prompts(family, as_sent=self._policy.history == "as_sent")
        canonicaliser = canonicaliser_of(self._policy.canonicalisers)
        self.nodes: list[Node] = []
        self.differences: list[Difference] = []
        self._seen: set[tuple[Divergence, int | None, str]] = set()
        self._trie = Trie(canonicaliser)
        self._at: dict[int, list[int]] = {}  # trie state -> nodes whose reply ends there
        self._replies: dict[Key, int] = {}  # key of a reply -> the newest node that has it
        self._state: list[int] = []  # node -> its trie state
        self._children: list[int] = []  # node -> number of children
        self._contexts: dict[int, Ids] = {}  # leaf -> prompt and reply
        self._comparison = Comparison(canonicaliser)

    def plan(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, respelled: frozenset[int] = frozenset()
    ) -> Plan:
        """Find the longest recorded path that the request continues, and render what is new.

        Args:
            messages: the whole conversation as the caller sent it.
            tools: the tools it offers.
            respelled: indexes of messages whose tool arguments were not spelt as `canonical.spell` does.

        Raises:
            LedgerError: there is no message, one cannot be rendered, or the history differs and the policy says
                `on_divergence = "error"`.
        """
        if not messages:
            raise LedgerError("a model call needs at least one message")
        sent = tuple(messages)
        offered = tuple(tools)
        walk = self._trie.walk(sent, offered)
        refused: tuple[Difference, ...] = ()
        for depth in range(len(walk.states), 0, -1):
            state, consumed = walk.states[depth - 1], walk.steps[depth - 1][1]
            if state not in self._at:
                continue
            match = self._choose(state, sent[:consumed], respelled)
            if match is None:
                continue
            parent, differences = match
            if self._refuses(differences):
                refused = refused or differences
                continue
            after = tuple(key for key, _ in walk.steps[depth:])
            plan = self._extend(parent, differences + refused, sent, offered, consumed, after)
            return plan or self._root(sent, offered, walk, Edge.UNBRIDGED, differences + refused)
        edge = Edge.FIRST if not self.nodes else Edge.REWRITTEN if walk.states else Edge.UNRELATED
        return self._root(sent, offered, walk, Edge.DIVERGED if refused else edge, refused)

    def commit(
        self,
        plan: Plan,
        sampled: Sampled,
        turn: Turn,
        *,
        sampling: Sampling,
        requested: Mapping[str, Any] | None = None,
        choice: int = 0,
    ) -> Node:
        """Record what the engine sampled on `plan.prompt`.

        Args:
            plan: from `plan`; other commits may have happened since.
            sampled: the engine's reply.
            turn: the reply as the caller gets it.
            sampling: how it was sampled.
            requested: what the caller asked for and did not get.
            choice: place among the replies to one call; the others are committed right before and after it.
        """
        node = Node(
            id=len(self.nodes),
            parent=plan.parent,
            edge=self._edge_now(plan),
            messages=plan.messages,
            tools=plan.tools,
            delta=plan.delta,
            prompt_digest=digest(plan.prompt),
            sampled=sampled,
            turn=turn,
            sampling=sampling,
            requested=requested or {},
            choice=choice,
        )
        state = plan.state
        if plan.parent is None:
            state = self._trie.root(plan.tools)
        reply = self._trie.key(turn.message())
        for key in (*plan.keys, reply):
            state = self._trie.step(state, key)
        self.nodes.append(node)
        self._replies[reply] = node.id
        self._at.setdefault(state, []).append(node.id)
        self._state.append(state)
        self._children.append(0)
        if plan.parent is not None:
            self._children[plan.parent] += 1
            self._contexts.pop(plan.parent, None)
        self._contexts[node.id] = np.concatenate([plan.prompt, sampled.token_ids])
        self._note(plan.differences)
        return node

    def has_children(self, node: int) -> bool:
        """Whether a call was built upon this reply."""
        return self._children[node] > 0

    def context(self, node: int) -> Ids:
        """Prompt and reply of a node. int32 [n]."""
        known = self._contexts.get(node)
        if known is not None:
            return known
        pieces = [ids for at in self._path(node) for ids in (at.sampled.token_ids, at.delta)]
        return np.concatenate(pieces[::-1])

    def _extend(
        self,
        parent: Node,
        differences: tuple[Difference, ...],
        sent: tuple[Message, ...],
        tools: tuple[ToolSpec, ...],
        consumed: int,
        keys: tuple[Key, ...],
    ) -> Plan | None:
        new = sent[consumed:]
        before = self.context(parent.id)
        delta = self._prompts.following(parent, self._path(parent.id), before, sent, tools, consumed=consumed)
        if delta is None:
            return None
        return Plan(
            parent=parent.id,
            edge=Edge.BRANCH if self._children[parent.id] else Edge.EXTEND,
            messages=new,
            tools=(),
            delta=delta,
            prompt=np.concatenate([before, delta]),
            differences=differences + unsampled_replies(new, consumed, parent.id, self._recorded),
            state=self._state[parent.id],
            keys=keys,
        )

    def _root(
        self,
        sent: tuple[Message, ...],
        tools: tuple[ToolSpec, ...],
        walk: Walk,
        edge: Edge,
        differences: tuple[Difference, ...],
    ) -> Plan:
        prompt = self._prompts.whole(sent, tools)
        return Plan(
            parent=None,
            edge=edge,
            messages=sent,
            tools=tools,
            delta=prompt,
            prompt=prompt,
            differences=differences + unsampled_replies(sent, 0, None, self._recorded),
            state=0,
            keys=tuple(key for key, _ in walk.steps),
        )

    def _choose(
        self, state: int, sent: tuple[Message, ...], respelled: frozenset[int]
    ) -> tuple[Node, tuple[Difference, ...]] | None:
        """Of the nodes at a trie state, the one that differs least from what was sent; the newest of equals."""
        best: tuple[Node, tuple[Difference, ...]] | None = None
        for id in reversed(self._at[state]):
            found = self._comparison.against(self._path(id), sent, respelled)
            if found is None or (best is not None and len(found) >= len(best[1])):
                continue
            best = (self.nodes[id], found)
            if not found:
                break
        return best

    def _refuses(self, differences: Sequence[Difference]) -> bool:
        """Whether the policy goes on from what was sent; raises where it refuses the call altogether."""
        first = next((each for each in differences if each.kind is not Divergence.DECLARED), None)
        if first is not None and self._policy.on_divergence == "error":
            raise LedgerError(
                f"the history sent differs from the record ({first.kind.value}, message {first.message}): "
                "send it back unchanged, or set on_divergence to record or fork"
            )
        return first is not None and not self._policy.keeps_changed_history

    def _recorded(self, message: Message) -> int | None:
        """The node whose reply a message is; its reasoning may be missing."""
        node = self._replies.get(self._trie.key(message))
        kept = "" if node is None else thought(self.nodes[node].turn.reasoning)
        return node if thought(message.reasoning) in {"", kept} else None

    def _path(self, node: int) -> Iterator[Node]:
        """From the node to its root."""
        at: int | None = node
        while at is not None:
            yield self.nodes[at]
            at = self.nodes[at].parent

    def _edge_now(self, plan: Plan) -> Edge:
        if plan.edge is Edge.EXTEND and plan.parent is not None and self._children[plan.parent]:
            return Edge.BRANCH
        return Edge.UNRELATED if plan.edge is Edge.FIRST and self.nodes else plan.edge

    def _note(self, differences: Sequence[Difference]) -> None:
        for difference in differences:
            mark = (difference.kind, difference.node, difference.sent)
            if mark not in self._seen:
                self._seen.add(mark)
                self.differences.append(difference)
