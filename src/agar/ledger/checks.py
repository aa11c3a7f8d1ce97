"""The invariants of one trace and of the rows that came from it."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from agar.errors import LedgerError
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Excluded, emission
from agar.ledger.layouts import LAYOUTS, Array, image_problem, node_problem
from agar.ledger.node import Divergence, Edge, Node
from agar.ledger.report import Violation
from agar.ledger.trace import Trace, prompt_digests
from agar.types import Bools, Floats, Ids, Sample, Source

if TYPE_CHECKING:
    from agar.ledger.families.base import Family  # the package of families loads tokenizers

_WEIGHT_TOLERANCE = 1e-6
_NOWHERE = (-1, 0)
_SHOWN_CHARACTERS = 120
_ROW_ARRAYS = ("token_ids", "loss_mask", "source", "logprobs", "policy_versions", "rewards")
_ROW_VALUES = ("policy", "group", "role", "trajectory", "reward", "weight", "outcome", "meta")
_UNSAMPLED = (Divergence.FOREIGN_REPLY, Divergence.RENDERED_AGAIN)


class TraceCheck:
    """The checks of one trace and its rows.

    Args:
        trace: the trace.
        samples: its rows.
        excluded: its sampled tokens that are not to be trained.
        oldest: the oldest policy version that may be trained; None for no bound.

    Attributes:
        violations: what was found.
    """

    def __init__(
        self, trace: Trace, samples: Sequence[Sample], excluded: Sequence[Excluded], oldest: int | None
    ) -> None:
        self.trace = trace
        self.violations: list[Violation] = []
        self._trained: list[list[Bools]] = [[] for _ in trace.nodes]
        self._forest()
        self._divergences()
        for sample in samples:
            self._shape(sample, oldest)
            self._provenance(sample)
            self._side(sample)
        self._conservation(excluded)
        self._rewards(samples)
        self.lost_turn_rewards = sum(1 for node in trace.turn_rewards if not self._trained[node])

    def say(self, invariant: str, detail: str) -> None:
        """Note a broken invariant."""
        self.violations.append(Violation(invariant=invariant, trajectory=self.trace.trajectory, detail=detail))

    def rendering(self, family: "Family") -> int:
        """I6: what no engine sampled is what the family writes.

        Args:
            family: that of the policy that was sampled.

        Returns:
            How many prompts could not be looked at: they begin with sampled ids where the family has no bridge, so they
            are its rendering of the whole conversation as the caller sent it, which a trace does not keep.
        """
        unseen = 0
        for node in self.trace.nodes:
            try:
                expected = self._rendered(node, family)
            except LedgerError as error:
                self.say("I6", f"the {family.name} family cannot render the messages of node {node.id}: {error}")
                continue
            if expected is None:
                unseen += 1
            elif not np.array_equal(expected, node.delta):
                what = "prompt" if node.parent is None else "bridge"
                self.say("I6", f"the {what} of node {node.id} is not what the {family.name} family renders")
        return unseen

    def replay(self, policy: RecordPolicy, version: int | None) -> None:
        """I14: the trace, written and read again, gives the same rows byte for byte."""
        line = self.trace.dump()
        again = Trace.load(line)
        if again.dump() != line:
            self.say("I14", "the trace does not load and dump again to the same bytes")
        rows = [emission(trace, policy, version=version).samples for trace in (self.trace, again)]
        if len(rows[0]) != len(rows[1]) or not all(same_row(*pair) for pair in zip(*rows, strict=True)):
            self.say("I14", "the trace, written and read again, gives other rows")

    def _rendered(self, node: Node, family: "Family") -> Ids | None:
        if node.parent is None:
            return family.render(node.messages, node.tools)
        parent = self.trace.nodes[node.parent]
        before = np.concatenate([self.trace.prompt(parent.id), parent.sampled.token_ids])
        bridge = family.bridge(before, parent.sampled.finish, node.messages)
        if bridge is not None:
            return bridge
        path = self.trace.path(node.id)
        messages = [each for at in path[:-1] for each in (*at.messages, at.turn.message())]
        whole = family.render([*messages, *node.messages], path[0].tools)
        return whole[len(before) :] if np.array_equal(whole[: len(before)], before) else None

    def _forest(self) -> None:
        built_upon: set[int] = set()
        calls: Counter[str] = Counter()
        for node, found in zip(self.trace.nodes, prompt_digests(self.trace.nodes), strict=True):
            if found != node.prompt_digest:
                self.say("I7", f"the recorded prompt of node {node.id} is not the one that went to the engine")
            if not _edge_fits(node, built_upon):
                self.say("I7", f"node {node.id} hangs on {node.parent} by the edge {node.edge.value}")
            if node.parent is not None:
                built_upon.add(node.parent)
            calls.update(call.id for call in node.turn.tool_calls)
            for name in node.sampled.side:
                problem = node_problem(name, node)
                if problem is not None:
                    self.say("I13", f"side array {name} of node {node.id} {problem}")
            images = image_problem(node)
            if images is not None:
                self.say("I13", f"node {node.id} {images}")
        twice = [id for id, count in calls.items() if count > 1]
        if twice:
            self.say("I8", f"tool calls {twice[:3]} stand in two replies: one reply was recorded twice")

    def _divergences(self) -> None:
        known = {each.sent for each in self.trace.divergences if each.kind in _UNSAMPLED}
        for node in self.trace.nodes:
            for message in node.messages:
                if message.role == "assistant" and message.text[:_SHOWN_CHARACTERS] not in known:
                    self.say("I9", f"node {node.id} holds an assistant message that no divergence tells of")
        for each in self.trace.divergences:
            if each.node is not None and not 0 <= each.node < len(self.trace.nodes):
                self.say("I9", f"a divergence names node {each.node}, which the trace does not have")

    def _shape(self, sample: Sample, oldest: int | None) -> None:
        mask, logprobs, versions = sample.loss_mask, sample.logprobs, sample.policy_versions
        if float(logprobs.max(initial=0.0)) > 0.0:
            self.say("I4", f"a log-prob of {float(logprobs.max())} is above 0")
        if logprobs[~mask].any():
            self.say("I4", "a log-prob is not 0 where nothing is trained")
        if (versions[mask] < 0).any() or (versions[~mask] != -1).any():
            self.say("I11", "policy versions must be set on trained tokens and only there")
        elif oldest is not None and (versions[mask] < oldest).any():
            self.say("I11", f"a token of version {versions[mask].min()} is trained; the oldest allowed is {oldest}")
        if (sample.source[mask] != Source.SAMPLED).any():
            self.say("I5", "a trained token is not marked as sampled")

    def _provenance(self, sample: Sample) -> None:
        claimed = np.zeros(len(sample.token_ids), dtype=np.bool_)
        row = sample.token_ids.tobytes()  # comparing bytes costs a tenth of comparing arrays
        begun: int | None = None  # the node whose prompt and reply the row begins with, and how many tokens those are
        at = 0
        for node_id, start, length in sample.meta.get("spans", []):
            if not 0 <= node_id < len(self.trace.nodes):
                self.say("I1", f"a span names node {node_id}, which the trace does not have")
                begun, at = _NOWHERE
                continue
            node, end = self.trace.nodes[node_id], start + length
            follows = (node.parent == begun and row[4 * at : 4 * start] == node.delta.tobytes()) or (
                row[: 4 * start] == self.trace.prompt(node_id).tobytes()
            )
            same = row[4 * start : 4 * end] == node.sampled.token_ids.tobytes()
            begun, at = (node_id, end) if follows and same else _NOWHERE
            mask = sample.loss_mask[start:end]
            claimed[start:end] = True
            if b"\1" not in mask.tobytes():
                continue
            if not same:
                self.say("I5", f"the trained span of node {node_id} is not what the engine sampled")
                continue
            if not follows:
                self.say("I1", f"the trained span of node {node_id} follows another prefix than its engine call had")
            self._engines(sample, node, start, mask)
            self._trained[node_id].append(mask)
        if (sample.loss_mask & ~claimed).any():
            self.say("I1", f"{int((sample.loss_mask & ~claimed).sum())} trained tokens belong to no engine call")

    def _engines(self, sample: Sample, node: Node, start: int, mask: Bools) -> None:
        span, reply = slice(start, start + len(mask)), node.sampled
        if sample.logprobs[span][mask].tobytes() != reply.logprobs[mask].tobytes():
            self.say("I3", f"log-probs of node {node.id} are not the engine's")
        if sample.policy_versions[span][mask].tobytes() != reply.policy_versions[mask].tobytes():
            self.say("I11", f"policy versions of node {node.id} are not the engine's")

    def _side(self, sample: Sample) -> None:
        for name, array in sample.side.items():
            layout = LAYOUTS.get(name)
            problem = "is not declared" if layout is None else layout.problem(array, len(sample.token_ids))
            problem = problem or _misfit(name, array, sample)
            if problem is not None:
                self.say("I13", f"side array {name} of a row {problem}")
        for node_id, start, length in sample.meta.get("spans", []):
            carried = self.trace.nodes[node_id].sampled.side if 0 <= node_id < len(self.trace.nodes) else {}
            for name, array in carried.items():
                row, layout = sample.side.get(name), LAYOUTS.get(name)
                per_token = layout is not None and layout.per_token
                if row is None or (per_token and not np.array_equal(row[start : start + length], array)):
                    self.say("I13", f"side array {name} of node {node_id} is not in the row as the engine gave it")

    def _conservation(self, excluded: Sequence[Excluded]) -> None:
        runs: list[list[Excluded]] = [[] for _ in self.trace.nodes]
        for run in excluded:
            runs[run.node].append(run)
        for node, masks, out in zip(self.trace.nodes, self._trained, runs, strict=True):
            if not out and len(masks) == 1 and b"\0" not in masks[0].tobytes():
                continue  # trained once, all of it
            times, left = np.zeros((2, len(node.sampled)), dtype=np.int32)
            for mask in masks:
                times += mask
            for run in out:
                left[run.start : run.stop] += 1
            if (times > 1).any():
                self.say("I2", f"{int((times > 1).sum())} tokens of node {node.id} are trained twice")
            if ((times > 0) & (left > 0)).any():
                self.say("I2", f"tokens of node {node.id} are trained although they are excluded")
            missing = int(((times == 0) & (left == 0)).sum())
            if missing:
                self.say("I2", f"{missing} tokens of node {node.id} are neither trained nor excluded with a reason")

    def _rewards(self, samples: Sequence[Sample]) -> None:
        if self.trace.open_calls and samples:
            self.say("I12", f"{self.trace.open_calls} calls were open at the seal, and it has rows all the same")
        total = sum(int(sample.loss_mask.sum()) for sample in samples)
        for sample in samples:
            share = int(sample.loss_mask.sum()) / total if total else 0.0
            if abs(sample.weight - share) > _WEIGHT_TOLERANCE:
                self.say("I10", f"a row weighs {sample.weight:g}, but has {share:g} of the trajectory's trained tokens")
            if sample.reward != self.trace.reward.total:
                self.say("I10", "a row carries another reward than the trace")
            if sample.group != self.trace.group:
                self.say("I10", "a row is in another group than the trace")
            if not np.array_equal(sample.rewards, self._turn_rewards(sample)):
                self.say("I10", "turn rewards of a row do not stand on the last trained token of their turns")

    def _turn_rewards(self, sample: Sample) -> Floats:
        expected = np.zeros(len(sample.token_ids), dtype=np.float32)
        if not self.trace.turn_rewards:
            return expected
        for node_id, start, length in sample.meta.get("spans", []):
            trained = np.flatnonzero(sample.loss_mask[start : start + length])
            if len(trained):
                expected[start + int(trained[-1])] = self.trace.turn_rewards.get(node_id, 0.0)
        return expected


def same_row(one: Sample, other: Sample) -> bool:
    """Whether two rows are the same to the last bit."""
    return (
        all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in _ROW_ARRAYS)
        and all(getattr(one, name) == getattr(other, name) for name in _ROW_VALUES)
        and one.side.keys() == other.side.keys()
        and all(array.tobytes() == other.side[name].tobytes() for name, array in one.side.items())
    )


def _misfit(name: str, array: Array, sample: Sample) -> str | None:
    """Why an array of the declared form contradicts the tokens of its row; None where it does not."""
    if name == "kept_vocabulary":
        kept, ids = array[sample.loss_mask], sample.token_ids[sample.loss_mask]
        fits = (kept == ids[:, None]).any(axis=1) | (kept < 0).all(axis=1)
        return None if fits.all() else f"lacks {int((~fits).sum())} tokens that were sampled from it"
    if name == "images" and any(sample.loss_mask[start : start + length].any() for start, length in array.tolist()):
        return "has placeholders that are trained"
    return None


def _edge_fits(node: Node, built_upon: set[int]) -> bool:
    if node.parent is None:
        return node.edge not in {Edge.EXTEND, Edge.BRANCH} and (node.edge is Edge.FIRST) == (node.id == 0)
    return node.edge is (Edge.BRANCH if node.parent in built_upon else Edge.EXTEND) and not node.tools
