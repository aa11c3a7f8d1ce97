"""The invariants of recording, checked on the rows about to be trained against the traces they came from."""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agar.errors import AuditError
from agar.ledger.config import AuditMode, RecordPolicy
from agar.ledger.emission import Excluded, Exclusion, emission
from agar.ledger.node import Divergence
from agar.ledger.trace import Trace, digest, token_count
from agar.types import Metrics, Sample, Source

logger = logging.getLogger(__name__)

_WEIGHT_TOLERANCE = 1e-6
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken invariant: which (`I1`...), in which trajectory, and how."""

    invariant: str
    trajectory: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What the audit counted.

    Attributes:
        traces: traces audited.
        samples: training rows audited.
        sampled_tokens: tokens that engines sampled in those traces.
        trained_tokens: tokens with a loss.
        excluded: sampled tokens that are not trained, by reason.
        divergences: noticed differences between histories sent and kept, by kind.
        lost_turn_rewards: turn rewards whose turn is not trained.
        violations: broken invariants.
    """

    traces: int
    samples: int
    sampled_tokens: int
    trained_tokens: int
    excluded: Mapping[Exclusion, int] = field(default_factory=dict)
    divergences: Mapping[Divergence, int] = field(default_factory=dict)
    lost_turn_rewards: int = 0
    violations: tuple[Violation, ...] = ()

    @property
    def ok(self) -> bool:
        """True when no invariant is broken."""
        return not self.violations

    def check(self, mode: AuditMode = "strict") -> None:
        """Act on the report.

        Raises:
            AuditError: an invariant is broken and `mode` is "strict".
        """
        if self.ok or mode == "off":
            return
        counts = Counter(v.invariant for v in self.violations)
        shown = "; ".join(f"{v.invariant} in {v.trajectory}: {v.detail}" for v in self.violations[:_SHOWN])
        text = f"the batch breaks {dict(sorted(counts.items()))}: {shown}"
        if mode == "strict":
            raise AuditError(f"{text}. Nothing was trained; set audit to warn to train regardless")
        logger.warning("%s", text)

    def raise_if_broken(self) -> None:
        """`check("strict")`.

        Raises:
            AuditError: an invariant is broken.
        """
        self.check("strict")

    def metrics(self) -> Metrics:
        """The counts as `ledger/...` metrics."""
        row = {
            "ledger/sampled_tokens": float(self.sampled_tokens),
            "ledger/trained_tokens": float(self.trained_tokens),
            "ledger/samples_per_trace": self.samples / self.traces if self.traces else 0.0,
            "ledger/violations": float(len(self.violations)),
            "ledger/lost_turn_rewards": float(self.lost_turn_rewards),
        }
        row |= {f"ledger/excluded_{reason.value}_tokens": float(n) for reason, n in self.excluded.items()}
        return row | {f"ledger/divergence_{kind.value}": float(n) for kind, n in self.divergences.items()}


def audit(
    traces: Sequence[Trace],
    samples: Sequence[Sample],
    policy: RecordPolicy | None = None,
    *,
    versions: Mapping[str, int] | None = None,
) -> AuditReport:
    """Check rows against the traces they came from.

    I1 every trained token follows the very prefix its engine call had. I2 trained and excluded tokens add up to the
    sampled ones, none twice. I3 log-probs and versions are the engine's, bit for bit. I4 shapes, signs, zeros. I5 no
    trained span but the sampled one. I7 the prompt that went to the engine is the one the forest gives. I10 rewards and
    weights. I11 versions on trained tokens only, and the staleness bound.

    Args:
        traces: every trace that `samples` came from.
        samples: the rows about to be trained.
        policy: the record policy that they were emitted under.
        versions: policy name to the version about to be trained, where `policy.max_staleness` is set.
    """
    policy = policy or RecordPolicy()
    rows: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        rows[_key(sample)].append(sample)
    known = {_key(trace) for trace in traces}
    found = [Violation(invariant="I1", trajectory=k[0], detail="rows without a trace") for k in rows if k not in known]
    excluded: Counter[Exclusion] = Counter()
    lost = 0
    for trace in traces:
        mine = rows.get(_key(trace), [])
        version = None if versions is None else versions.get(trace.policy)
        left_out = emission(trace, policy, version=version).excluded
        for run in left_out:
            excluded[run.reason] += run.stop - run.start
        check = _TraceCheck(trace, mine, left_out)
        found += check.violations
        lost += check.lost_turn_rewards
    return AuditReport(
        traces=len(traces),
        samples=len(samples),
        sampled_tokens=sum(token_count(trace.nodes) for trace in traces),
        trained_tokens=sum(int(sample.loss_mask.sum()) for sample in samples),
        excluded=dict(excluded),
        divergences=dict(Counter(d.kind for trace in traces for d in trace.divergences)),
        lost_turn_rewards=lost,
        violations=tuple(found),
    )


def _key(item: Trace | Sample) -> tuple[str, str, str]:
    return item.trajectory, item.role, item.policy


class _TraceCheck:
    """The checks of one trace and its rows."""

    def __init__(self, trace: Trace, samples: Sequence[Sample], excluded: Sequence[Excluded]) -> None:
        self.trace = trace
        self.violations: list[Violation] = []
        self._times = [np.zeros(len(node.sampled), dtype=np.int32) for node in trace.nodes]
        self._prompts = {node.id: trace.prompt(node.id) for node in trace.nodes}
        self._forest()
        for sample in samples:
            self._shape(sample)
            self._provenance(sample)
        self._conservation(excluded)
        self._rewards(samples)
        trained = {node.id for node, times in zip(trace.nodes, self._times, strict=True) if times.any()}
        self.lost_turn_rewards = sum(1 for node in trace.turn_rewards if node not in trained)

    def _say(self, invariant: str, detail: str) -> None:
        self.violations.append(Violation(invariant=invariant, trajectory=self.trace.trajectory, detail=detail))

    def _forest(self) -> None:
        for node in self.trace.nodes:
            if digest(self._prompts[node.id]) != node.prompt_digest:
                self._say("I7", f"the recorded prompt of node {node.id} is not the one that went to the engine")

    def _shape(self, sample: Sample) -> None:
        mask, logprobs = sample.loss_mask, sample.logprobs
        if float(logprobs.max(initial=0.0)) > 0.0:
            self._say("I4", f"a log-prob of {float(logprobs.max())} is above 0")
        if logprobs[~mask].any():
            self._say("I4", "a log-prob is not 0 where nothing is trained")
        if (sample.policy_versions[mask] < 0).any() or (sample.policy_versions[~mask] != -1).any():
            self._say("I11", "policy versions must be set on trained tokens and only there")
        if (sample.source[mask] != Source.SAMPLED).any():
            self._say("I5", "a trained token is not marked as sampled")

    def _provenance(self, sample: Sample) -> None:
        claimed = np.zeros(len(sample.token_ids), dtype=np.bool_)
        for node_id, start, length in sample.meta.get("spans", []):
            if not 0 <= node_id < len(self.trace.nodes):
                self._say("I1", f"a span names node {node_id}, which the trace does not have")
                continue
            reply, prompt = self.trace.nodes[node_id].sampled, self._prompts[node_id]
            span = slice(start, start + length)
            mask = sample.loss_mask[span]
            claimed[span] = True
            if not mask.any():
                continue
            if length != len(reply) or not np.array_equal(sample.token_ids[span], reply.token_ids):
                self._say("I5", f"the trained span of node {node_id} is not what the engine sampled")
                continue
            if not np.array_equal(sample.token_ids[:start], prompt):
                self._say("I1", f"the trained span of node {node_id} follows another prefix than its engine call had")
            if sample.logprobs[span][mask].tobytes() != reply.logprobs[mask].tobytes():
                self._say("I3", f"log-probs of node {node_id} are not the engine's")
            if not np.array_equal(sample.policy_versions[span][mask], reply.policy_versions[mask]):
                self._say("I11", f"policy versions of node {node_id} are not the engine's")
            self._times[node_id] += mask
        if (sample.loss_mask & ~claimed).any():
            self._say("I1", f"{int((sample.loss_mask & ~claimed).sum())} trained tokens belong to no engine call")

    def _conservation(self, excluded: Sequence[Excluded]) -> None:
        out = [np.zeros(len(times), dtype=np.int32) for times in self._times]
        for run in excluded:
            out[run.node][run.start : run.stop] += 1
        for node_id, (times, left) in enumerate(zip(self._times, out, strict=True)):
            if (times > 1).any():
                self._say("I2", f"{int((times > 1).sum())} tokens of node {node_id} are trained twice")
            if ((times > 0) & (left > 0)).any():
                self._say("I2", f"tokens of node {node_id} are trained although they are excluded")
            missing = int(((times == 0) & (left == 0)).sum())
            if missing:
                self._say("I2", f"{missing} tokens of node {node_id} are neither trained nor excluded with a reason")

    def _rewards(self, samples: Sequence[Sample]) -> None:
        if not samples:
            return
        weight = sum(sample.weight for sample in samples)
        if abs(weight - 1.0) > _WEIGHT_TOLERANCE:
            self._say("I10", f"the weights of its rows add to {weight}, not 1")
        if any(sample.reward != self.trace.reward.total for sample in samples):
            self._say("I10", "its rows carry another reward than the trace")
        if any(sample.group != self.trace.group for sample in samples):
            self._say("I10", "its rows are in another group than the trace")
