"""What an audit found."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agar.errors import AuditError
from agar.ledger.config import AuditMode
from agar.ledger.emission import Exclusion
from agar.ledger.node import Divergence
from agar.ledger.parity import Parity
from agar.types import Metrics

logger = logging.getLogger(__name__)

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
        looked_at: by invariant that is too dear to check everywhere (I6, I14), the traces it was checked on.
        unchecked: by invariant that was not checked, or not in full, why.
        parity: the trainer's log-probs against the engine's, where rows were scored again (I3).
        violations: broken invariants.
    """

    traces: int
    samples: int
    sampled_tokens: int
    trained_tokens: int
    excluded: Mapping[Exclusion, int] = field(default_factory=dict)
    divergences: Mapping[Divergence, int] = field(default_factory=dict)
    lost_turn_rewards: int = 0
    looked_at: Mapping[str, int] = field(default_factory=dict)
    unchecked: Mapping[str, str] = field(default_factory=dict)
    parity: Parity | None = None
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

    def but(self, parity: Parity | None, *violations: Violation) -> "AuditReport":
        """The report with what scoring again found."""
        return replace(self, parity=parity, violations=(*self.violations, *violations))

    def metrics(self) -> Metrics:
        """The counts as `ledger/...` metrics."""
        row = {
            "ledger/sampled_tokens": float(self.sampled_tokens),
            "ledger/trained_tokens": float(self.trained_tokens),
            "ledger/samples_per_trace": self.samples / self.traces if self.traces else 0.0,
            "ledger/violations": float(len(self.violations)),
            "ledger/lost_turn_rewards": float(self.lost_turn_rewards),
        }
        row |= {f"ledger/looked_at_{invariant}": float(n) for invariant, n in self.looked_at.items()}
        row |= {f"ledger/excluded_{reason.value}_tokens": float(n) for reason, n in self.excluded.items()}
        row |= {f"ledger/divergence_{kind.value}": float(n) for kind, n in self.divergences.items()}
        return {**row, **(self.parity.metrics() if self.parity is not None else {})}
