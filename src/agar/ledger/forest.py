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
from agar.ledger.canonicalisers import canonicaliser_of
from agar.ledger.comparison import Comparison, thought, unsampled_replies
from agar.ledger.config import RecordPolicy
from agar.ledger.context import Context
from agar.ledger.families.base import Family
from agar.ledger.leaves import Asked, Leaf, Leaves
from agar.ledger.node import Difference, Divergence, Edge, Node
from agar.ledger.paths import Paths
from agar.ledger.prompts import Prompts
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
        differences: noticed between the history sent and the history kept.
        asked: the request.
        context: the prompt.
    """

    parent: int | None
    edge: Edge
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    delta: Ids
    differences: tuple[Difference, ...]
    asked: Asked
    context: Context

    @property
    def prompt(self) -> Ids:
        """What the engine must be given. int32 [n]."""
        return self.context.ids


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
        self._paths = Paths(canonicaliser)
        self._comparison = Comparison(canonicaliser)
        self._children: list[int] = []  # node -> number of children
        self._leaves = Leaves()
        self._declared = bool(canonicaliser)

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
        asked = Asked(tuple(messages), tuple(tools), respelled)
        return self._resumed(asked) or self._searched(asked)

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
            prompt_digest=plan.context.digest,
            sampled=sampled,
            turn=turn,
            sampling=sampling,
            requested=requested or {},
            choice=choice,
        )
        self._paths.add(node)
        self.nodes.append(node)
        self._children.append(0)
        if plan.parent is not None:
            self._children[plan.parent] += 1
            self._leaves.drop(plan.parent)
        self._leaves.add(Leaf(node, plan.asked, plan.context.followed(sampled.token_ids)))
        self._note(plan.differences)
        return node

    def has_children(self, node: int) -> bool:
        """Whether a call was built upon this reply."""
        return self._children[node] > 0

    def context(self, node: int) -> Ids:
        """Prompt and reply of a node. int32 [n]."""
        return self._context(node).ids

    def _resumed(self, asked: Asked) -> Plan | None:
        """What `_searched` would find, for a call that goes on from a leaf with the very messages that led there.

        In the request no reply stands behind the leaf's own, so no longer path matches; and no other path is the same.
        None where that is not so, or where there is something to look at that only the search does.
        """
        leaf = None if self._declared else self._leaves.before(asked.sent, asked.tools)
        if leaf is None or not self._paths.alone(leaf.node.id):
            return None
        at = len(leaf.asked.sent)
        if asked.respelled != leaf.asked.respelled and asked.respelled - {at} != leaf.asked.respelled:
            return None
        reply = self._comparison.reply(leaf.node, asked.sent[at], at, respelled=at in asked.respelled)
        if reply is None:
            return None
        found = leaf.asked.found + reply
        if found and not self._policy.keeps_changed_history:
            return None
        return self._extend(leaf.node, leaf.context, asked, found, at + 1)

    def _searched(self, asked: Asked) -> Plan:
        sent, respelled = asked.sent, asked.respelled
        walk = self._paths.walk(sent, asked.tools)
        refused: tuple[Difference, ...] = ()
        for state, (_, consumed) in zip(reversed(walk.states), reversed(walk.steps[: len(walk.states)]), strict=True):
            match = self._choose(self._paths.ending(state), sent[:consumed], respelled)
            if match is None:
                continue
            parent, found = match
            if self._refuses(found):
                refused = refused or found
                continue
            plan = self._extend(parent, self._context(parent.id), asked, found, consumed, refused)
            return plan or self._root(asked, Edge.UNBRIDGED, found + refused)
        edge = Edge.FIRST if not self.nodes else Edge.REWRITTEN if walk.states else Edge.UNRELATED
        return self._root(asked, Edge.DIVERGED if refused else edge, refused)

    def _extend(
        self,
        parent: Node,
        before: Context,
        asked: Asked,
        found: tuple[Difference, ...],
        consumed: int,
        refused: tuple[Difference, ...] = (),
    ) -> Plan | None:
        new = asked.sent[consumed:]
        path = self._path(parent.id)
        delta = self._prompts.following(parent, path, before.ids, asked.sent, asked.tools, consumed=consumed)
        if delta is None:
            return None
        return Plan(
            parent=parent.id,
            edge=Edge.BRANCH if self._children[parent.id] else Edge.EXTEND,
            messages=new,
            tools=(),
            delta=delta,
            differences=found + refused + unsampled_replies(new, consumed, parent.id, self._recorded),
            asked=asked._replace(found=found) if found else asked,
            context=before.followed(delta),
        )

    def _root(self, asked: Asked, edge: Edge, differences: tuple[Difference, ...]) -> Plan:
        prompt = self._prompts.whole(asked.sent, asked.tools)
        return Plan(
            parent=None,
            edge=edge,
            messages=asked.sent,
            tools=asked.tools,
            delta=prompt,
            differences=differences + unsampled_replies(asked.sent, 0, None, self._recorded),
            asked=asked,
            context=Context.of(prompt),
        )

    def _choose(
        self, nodes: Sequence[int], sent: tuple[Message, ...], respelled: frozenset[int]
    ) -> tuple[Node, tuple[Difference, ...]] | None:
        """Of the nodes that end at a place, the one that differs least from what was sent; the newest of equals."""
        best: tuple[Node, tuple[Difference, ...]] | None = None
        for id in reversed(nodes):
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
        node = self._paths.reply(message)
        kept = "" if node is None else thought(self.nodes[node].turn.reasoning)
        return node if thought(message.reasoning) in {"", kept} else None

    def _context(self, node: int) -> Context:
        known = self._leaves.context(node)
        if known is not None:
            return known
        pieces = [ids for at in self._path(node) for ids in (at.sampled.token_ids, at.delta)]
        return Context.of(np.concatenate(pieces[::-1]))

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
