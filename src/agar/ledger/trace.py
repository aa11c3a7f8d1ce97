"""The record of one episode of one role: what was sent, what was sampled, what it was worth."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agar.errors import LedgerError
from agar.ledger import codec
from agar.ledger.node import Difference, Node
from agar.types import GroupId, Ids, Outcome, Reward, TaskRow

VERSION = 2
"""Version of the trace format; any change of a field that a trace holds raises it and adds an upgrade."""


def _several_replies(trace: dict[str, Any]) -> dict[str, Any]:
    """Version 1 knew one reply to a call, and neither stop texts nor schemas."""
    for node in trace["nodes"]:
        node["choice"] = 0
        node["sampling"] |= {"stop": [], "json_schema": None}
    return trace


_UPGRADES: Mapping[int, codec.Upgrade] = {1: _several_replies}
"""From each older version to the next one. A recorded file of each is in the tests."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """One episode of one role.

    Attributes:
        trajectory: id of the attempt.
        group: the attempts at one task.
        role: role in the environment; "agent" where there is only one.
        policy: name of the policy that was sampled.
        task: the task.
        nodes: the model calls in commit order; a node's id is its index.
        divergences: differences between the histories sent and the history kept.
        turn_rewards: node id to the reward of that turn.
        reward: the trajectory's reward.
        outcome: how the episode ended.
        reason: one line on why it ended so.
        trainable: False for a role whose policy is frozen.
        open_calls: model calls that were under way when the session was sealed; any makes the trace untrainable.
        meta: free-form, JSON-able.
    """

    trajectory: str
    group: GroupId
    role: str
    policy: str
    task: TaskRow
    nodes: tuple[Node, ...]
    divergences: tuple[Difference, ...] = ()
    turn_rewards: Mapping[int, float] = field(default_factory=dict)
    reward: Reward
    outcome: Outcome
    reason: str = ""
    trainable: bool = True
    open_calls: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            if node.id != index or (node.parent is not None and not 0 <= node.parent < index):
                raise LedgerError(
                    f"node {node.id} (parent {node.parent}) at index {index}: ids must count from 0 in commit order "
                    "and a parent must come before its child"
                )
        strangers = [node for node in self.turn_rewards if not 0 <= node < len(self.nodes)]
        if strangers:
            raise LedgerError(f"turn rewards name nodes {strangers}, but the trace has {len(self.nodes)}")

    def path(self, node: int) -> list[Node]:
        """The nodes from the root to `node`."""
        found = [self.nodes[node]]
        while (parent := found[-1].parent) is not None:
            found.append(self.nodes[parent])
        return found[::-1]

    def prompt(self, node: int) -> Ids:
        """The prompt of `node` as the engine saw it. int32 [n]."""
        pieces = [array for before in self.path(node)[:-1] for array in (before.delta, before.sampled.token_ids)]
        return np.concatenate([*pieces, self.nodes[node].delta])

    @property
    def leaves(self) -> list[int]:
        """Nodes that no node continues, in commit order."""
        parents = {node.parent for node in self.nodes}
        return [node.id for node in self.nodes if node.id not in parents]

    def dump(self) -> bytes:
        """The trace as one line of JSON, without the line end. Loading and dumping it again gives the same bytes."""
        return codec.dump_line(VERSION, self)

    @classmethod
    def load(cls, line: bytes) -> "Trace":
        """Read what `dump` wrote; neither an engine nor a tokenizer is needed.

        Raises:
            LedgerError: not a trace, or one of a version that is not known.
        """
        return codec.load_line(VERSION, line, cls, _UPGRADES)


def digest(ids: Ids) -> str:
    """BLAKE2b-128 of int32 ids, in hexadecimal."""
    return hashlib.blake2b(np.ascontiguousarray(ids, dtype="<i4").tobytes(), digest_size=16).hexdigest()


def prompt_digests(nodes: Sequence[Node]) -> list[str]:
    """The digest of every node's prompt, each token hashed once however many prompts begin with it."""
    after: list[Any] = []  # by node, the hash of its prompt and reply
    found: list[str] = []
    for node in nodes:
        hashed = hashlib.blake2b(digest_size=16) if node.parent is None else after[node.parent].copy()
        hashed.update(np.ascontiguousarray(node.delta, dtype="<i4").tobytes())
        found.append(hashed.hexdigest())
        hashed.update(np.ascontiguousarray(node.sampled.token_ids, dtype="<i4").tobytes())
        after.append(hashed)
    return found


def dump_traces(path: str | Path, traces: Iterable[Trace]) -> int:
    """Write traces to a file, one per line; returns how many."""
    count = 0
    with Path(path).open("wb") as file:
        for count, trace in enumerate(traces, start=1):  # noqa: B007 (the count is the result)
            file.write(trace.dump() + b"\n")
    return count


def load_traces(path: str | Path) -> Iterator[Trace]:
    """Read the traces of a file one by one.

    Raises:
        LedgerError: a line is not a trace of this version.
    """
    with Path(path).open("rb") as file:
        for line in file:
            yield Trace.load(line)


def token_count(nodes: Sequence[Node]) -> int:
    """Tokens sampled in the nodes."""
    return sum(len(node.sampled) for node in nodes)
