"""Traces to training rows. Every sampled token is trained exactly once or excluded with a reason from a closed list."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.ledger.canonical import message_key
from agar.ledger.canonicalisers import canonicaliser_of
from agar.ledger.config import RecordPolicy
from agar.ledger.images import images_of
from agar.ledger.layouts import carry
from agar.ledger.node import Node
from agar.ledger.trace import Trace
from agar.types import Bools, Finish, Floats, Ids, Sample, Source


class Exclusion(StrEnum):
    """Why a sampled token is not trained."""

    ABANDONED_RETRY = "abandoned_retry"
    """The caller asked again and never built upon this reply."""
    FROZEN_ROLE = "frozen_role"
    """The role's policy is not trained."""
    TRUNCATED_POLICY = "truncated_policy"
    """The reply was cut by its length and the record policy excludes those."""
    ABORTED = "aborted"
    """The engine gave the reply up."""
    INFRA_FAILURE = "infra_failure"
    """The episode's outcome is outside the statistics (engine, sandbox or environment failed, or it was cancelled)."""
    QUARANTINED = "quarantined"
    """Model calls were under way when the session was sealed."""
    CONSTRAINED = "constrained"
    """A schema constrained the sampler: the log-probs are not the model's own."""
    FILTERED = "filtered"
    """Drawn under top-p, top-k, min-p or greedily: the log-probs are not the model's own."""
    IMAGES = "images"
    """Sampled on a prompt with images, which no trainer here reads yet."""
    STALE_WEIGHTS = "stale_weights"
    """Sampled by a policy version beyond the staleness bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A run of sampled tokens of one node that is not trained: tokens `start` up to `stop` of its reply."""

    node: int
    start: int
    stop: int
    reason: Exclusion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Emission:
    """What a trace gives: training rows, and the sampled tokens that are in none of them."""

    samples: tuple[Sample, ...]
    excluded: tuple[Excluded, ...]


def emit(trace: Trace, policy: RecordPolicy | None = None, *, version: int | None = None) -> list[Sample]:
    """The training rows of a trace; see `emission`."""
    return list(emission(trace, policy, version=version).samples)


def emission(trace: Trace, policy: RecordPolicy | None = None, *, version: int | None = None) -> Emission:
    """The training rows of a trace and what was left out.

    One sample per leaf of the forest that has anything to train, up to the last reply that it trains, in commit order
    of that reply. A reply shared by several leaves is trained in the first of those that are trained themselves, and is
    context in the others. A sample's `weight` is its share of the trajectory's trained tokens. `meta["spans"]` lists
    (node, position, length) of every reply in the row; `meta["samplers"]` the sampler of each node that was not drawn
    neutrally and is trained all the same. Side arrays are carried as `layouts` declares.

    Args:
        trace: a sealed trace.
        policy: what is kept out of training; the default policy if None.
        version: the policy version about to be trained, for `policy.max_staleness`; None skips that rule.
    """
    keep, excluded = _keep(trace, policy or RecordPolicy(), version)
    trained: set[int] = set()
    rows: list[tuple[list[Node], Mapping[int, Bools], int]] = []
    # A leaf that is not trained itself (an abandoned retry) comes last: it would take the replies that lead to it into
    # a row of their own, although the leaf that was built upon in its stead has them all.
    for leaf in sorted(trace.leaves, key=lambda leaf: (not keep[leaf].any(), leaf)):
        path = trace.path(leaf)
        masks = {node.id: keep[node.id] for node in path if node.id not in trained and keep[node.id].any()}
        while path and path[-1].id not in masks:
            path.pop()
        if path:
            trained.update(node.id for node in path)
            rows.append((path, masks, sum(int(mask.sum()) for mask in masks.values())))
    rows.sort(key=lambda row: row[0][-1].id)
    total = sum(count for _, _, count in rows)
    samples = tuple(_sample(trace, path, masks, weight=count / total) for path, masks, count in rows)
    return Emission(samples=samples, excluded=tuple(excluded))


def exclusions(trace: Trace, policy: RecordPolicy | None = None, *, version: int | None = None) -> tuple[Excluded, ...]:
    """What `emission` leaves out of a trace, without the rows."""
    return tuple(_keep(trace, policy or RecordPolicy(), version)[1])


def _keep(trace: Trace, policy: RecordPolicy, version: int | None) -> tuple[dict[int, Bools], list[Excluded]]:
    """Per node, which of its tokens are trained; and the runs that are not."""
    whole = _whole_trace(trace)
    abandoned = _abandoned(trace, policy) if policy.abandoned == "exclude" else set()
    keep: dict[int, Bools] = {}
    excluded: list[Excluded] = []
    seeing: set[int | None] = set()  # nodes whose prompt holds images
    for node in trace.nodes:
        if node.parent in seeing or images_of(node.messages):
            seeing.add(node.id)
        n = len(node.sampled)
        reason = whole or _whole_node(node, policy, abandoned) or (Exclusion.IMAGES if node.id in seeing else None)
        keep[node.id] = np.full(n, reason is None, dtype=np.bool_)
        if reason is not None:
            if n:
                excluded.append(Excluded(node=node.id, start=0, stop=n, reason=reason))
        elif version is not None and policy.max_staleness is not None:
            stale = node.sampled.policy_versions < version - policy.max_staleness
            keep[node.id] &= ~stale
            excluded += [
                Excluded(node=node.id, start=start, stop=stop, reason=Exclusion.STALE_WEIGHTS)
                for start, stop in _runs(stale)
            ]
    return keep, excluded


def _whole_trace(trace: Trace) -> Exclusion | None:
    if not trace.trainable:
        return Exclusion.FROZEN_ROLE
    if not trace.outcome.trainable:
        return Exclusion.INFRA_FAILURE
    return Exclusion.QUARANTINED if trace.open_calls else None


def _whole_node(node: Node, policy: RecordPolicy, abandoned: set[int]) -> Exclusion | None:
    if node.sampled.finish is Finish.ABORT:
        return Exclusion.ABORTED
    if node.id in abandoned:
        return Exclusion.ABANDONED_RETRY
    if policy.truncated == "exclude" and node.sampled.finish is Finish.LENGTH:
        return Exclusion.TRUNCATED_POLICY
    if policy.sampler == "neutral" and node.sampling.json_schema is not None:
        return Exclusion.CONSTRAINED
    if policy.sampler == "neutral" and not node.sampling.neutral:
        return Exclusion.FILTERED
    return None


def _abandoned(trace: Trace, policy: RecordPolicy) -> set[int]:
    """Leaves whose very question was asked in another call too, and that the caller passed over.

    It passed a reply over when it asked again later, or when it went on from the other call's reply although it had
    both. So it does not matter which of two calls under way at once is recorded first.
    """
    canonicaliser = canonicaliser_of(policy.canonicalisers)
    newest_child = {node.parent: node.id for node in trace.nodes}
    siblings = Counter(node.parent for node in trace.nodes)
    asked: dict[object, list[Node]] = defaultdict(list)
    for node in trace.nodes:
        if siblings[node.parent] == 1:
            continue
        messages = tuple(message_key(message, canonicaliser) for message in node.messages)
        asked[node.parent, node.tools and repr(node.tools), messages].append(node)
    found: set[int] = set()
    for replies in asked.values():
        last = max(_call(node) for node in replies)
        went_on = max((newest_child.get(node.id, -1) for node in replies if _call(node) != last), default=-1)
        found |= {
            node.id for node in replies if node.id not in newest_child and (_call(node) != last or went_on > node.id)
        }
    return found


def _call(node: Node) -> int:
    """The call that a reply belongs to, as the node of its first reply."""
    return node.id - node.choice


def _runs(flags: Bools) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(start), int(stop)) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


def _sample(trace: Trace, path: list[Node], masks: Mapping[int, Bools], *, weight: float) -> Sample:
    length = sum(len(node.delta) + len(node.sampled) for node in path)
    token_ids: Ids = np.empty(length, dtype=np.int32)
    loss_mask: Bools = np.zeros(length, dtype=np.bool_)
    source: npt.NDArray[np.uint8] = np.full(length, Source.CONTEXT, dtype=np.uint8)
    logprobs: Floats = np.zeros(length, dtype=np.float32)
    versions: Ids = np.full(length, -1, dtype=np.int32)
    rewards: Floats = np.zeros(length, dtype=np.float32)
    spans: list[list[int]] = []
    position = 0
    for node in path:
        token_ids[position : position + len(node.delta)] = node.delta
        position += len(node.delta)
        span = slice(position, position + len(node.sampled))
        token_ids[span] = node.sampled.token_ids
        spans.append([node.id, position, len(node.sampled)])
        position = span.stop
        mask = masks.get(node.id)
        if mask is None or not mask.any():
            continue
        loss_mask[span] = mask
        source[span] = np.where(mask, np.uint8(Source.SAMPLED), np.uint8(Source.CONTEXT))
        logprobs[span] = np.where(mask, node.sampled.logprobs, np.float32(0))
        versions[span] = np.where(mask, node.sampled.policy_versions, np.int32(-1))
        rewards[span.start + int(np.flatnonzero(mask)[-1])] = trace.turn_rewards.get(node.id, 0.0)
    filtered = {str(node.id): _sampler(node) for node in path if node.id in masks and _filtered(node)}
    return Sample(
        policy=trace.policy,
        group=trace.group,
        role=trace.role,
        trajectory=trace.trajectory,
        token_ids=token_ids,
        loss_mask=loss_mask,
        source=source,
        logprobs=logprobs,
        policy_versions=versions,
        rewards=rewards,
        reward=trace.reward.total,
        weight=weight,
        outcome=trace.outcome,
        side=carry(path, length),
        meta={"spans": spans} | ({"samplers": filtered} if filtered else {}),
    )


def _filtered(node: Node) -> bool:
    return not node.sampling.neutral or node.sampling.json_schema is not None


def _sampler(node: Node) -> dict[str, Any]:
    how = node.sampling
    drawn = {"temperature": how.temperature, "top_p": how.top_p, "top_k": how.top_k, "min_p": how.min_p}
    return drawn if how.json_schema is None else {**drawn, "json_schema": how.json_schema}
