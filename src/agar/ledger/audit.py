"""The invariants of recording, checked on the rows about to be trained against the traces they came from."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agar.ledger.checks import TraceCheck
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Exclusion, exclusions
from agar.ledger.parity import draw
from agar.ledger.report import AuditReport, Violation
from agar.ledger.trace import Trace, token_count
from agar.types import Sample

if TYPE_CHECKING:
    from agar.ledger.families.base import Family  # the package of families loads tokenizers


def audit(
    traces: Sequence[Trace],
    samples: Sequence[Sample],
    policy: RecordPolicy | None = None,
    *,
    versions: Mapping[str, int] | None = None,
    families: "Mapping[str, Family] | None" = None,
    closely: int | None = None,
) -> AuditReport:
    """Check rows against the traces they came from.

    I1 every trained token follows the very prefix its engine call had. I2 trained and excluded tokens add up to the
    sampled ones, none twice. I3 log-probs are the engine's, bit for bit. I4 shapes, signs, zeros. I5 no trained span
    but the sampled one. I6 what was not sampled is what the family renders. I7 the prompt that went to the engine is
    the one the forest gives, and edges fit the tree. I8 no reply stands in two nodes. I9 an assistant message that was
    not sampled where it stands is told of. I10 rewards and weights. I11 versions on trained tokens only, and the
    staleness bound. I12 no rows from a session that was sealed with calls open. I13 side arrays are as declared, and
    carried as they were. I14 a trace written and read again gives the same rows.

    Args:
        traces: every trace that `samples` came from.
        samples: the rows about to be trained.
        policy: the record policy that they were emitted under.
        versions: policy name to the version about to be trained, where `policy.max_staleness` is set.
        families: policy name to its family, for I6; without one it is not checked, and the report says so.
        closely: how many traces are checked for I6 and I14, which need as much work as making them; None for all.
    """
    policy = policy or RecordPolicy()
    rows: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        rows[_key(sample)].append(sample)
    known = {_key(trace) for trace in traces}
    found = [Violation(invariant="I1", trajectory=k[0], detail="rows without a trace") for k in rows if k not in known]
    chosen = set(map(_key, sorted(traces, key=lambda trace: draw(trace.trajectory))[:closely]))
    excluded: Counter[Exclusion] = Counter()
    looked_at: Counter[str] = Counter()
    unchecked: dict[str, str] = {}
    lost = 0
    for trace in traces:
        version = None if versions is None else versions.get(trace.policy)
        left_out = exclusions(trace, policy, version=version)
        for run in left_out:
            excluded[run.reason] += run.stop - run.start
        oldest = None if version is None or policy.max_staleness is None else version - policy.max_staleness
        check = TraceCheck(trace, rows.get(_key(trace), []), left_out, oldest)
        if _key(trace) in chosen:
            unseen = _rendering(check, families or {})
            if unseen is None:
                looked_at["I6"] += 1
            else:
                unchecked["I6"] = unseen
            check.replay(policy, version)
            looked_at["I14"] += 1
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
        looked_at=dict(looked_at),
        unchecked=unchecked,
        violations=tuple(found),
    )


def _rendering(check: TraceCheck, families: "Mapping[str, Family]") -> str | None:
    """Check I6; why it could not be, or not in full, or None."""
    policy = check.trace.policy
    if policy not in families:
        return f"policy {policy!r} came without its family (a model folder with a tokenizer)"
    unseen = check.rendering(families[policy])
    if not unseen:
        return None
    return (
        f"{unseen} prompts of {check.trace.trajectory} are the {families[policy].name} family's rendering of what the "
        "caller sent, which a trace does not keep"
    )


def _key(item: Trace | Sample) -> tuple[str, str, str]:
    return item.trajectory, item.role, item.policy
