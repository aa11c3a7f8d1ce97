"""I3, recomputed: the trainer's log-probs of some rows against those that the engine gave while it sampled them.

Only tokens of the version that is about to be trained are compared: on older ones the two must differ.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agar.errors import ShapeError
from agar.types import Bools, Floats, Ids, Metrics, Sample

Rescore = Callable[[str, Ids], Awaitable[Floats]]
"""(policy, ids int32 [T]) -> float32 [T - 1], entry i the trainer's log p(ids[i + 1] | ids[: i + 1])."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How far two computations of the same log-probs are apart.

    Attributes:
        rows: rows scored again.
        tokens: tokens compared.
        mean_nats: mean absolute difference.
        max_nats: largest absolute difference.
    """

    rows: int
    tokens: int
    mean_nats: float
    max_nats: float

    @classmethod
    def of(cls, gaps: Sequence[Floats]) -> "Parity":
        """From the absolute differences of each row, at least one of them in all."""
        whole = np.concatenate(gaps).astype(np.float64)
        return cls(rows=len(gaps), tokens=len(whole), mean_nats=float(whole.mean()), max_nats=float(whole.max()))

    def metrics(self) -> Metrics:
        """As `ledger/...` metrics."""
        return {
            "ledger/parity_tokens": float(self.tokens),
            "ledger/parity_mean_nats": self.mean_nats,
            "ledger/parity_max_nats": self.max_nats,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCheck:
    """Scores some rows of each batch again before it is trained.

    Attributes:
        rescore: the trainer's log-probs.
        rows: rows of each batch.
        tolerance_nats: largest mean absolute difference that passes; None compares and judges nothing.
    """

    rescore: Rescore
    rows: int
    tolerance_nats: float | None

    async def run(self, samples: Sequence[Sample], versions: Mapping[str, int]) -> Parity | None:
        """Score rows again; None where no row has a token of the present version.

        Raises:
            ShapeError: the trainer gave another number of log-probs.
        """
        gaps = []
        for sample in pick(samples, self.rows, versions):
            found = await self.rescore(sample.policy, sample.token_ids)
            gaps.append(gap(sample, found, versions[sample.policy]))
        return Parity.of(gaps) if gaps else None

    def problem(self, parity: Parity | None) -> str | None:
        """Why the difference does not pass; None where it does."""
        if parity is None or self.tolerance_nats is None or parity.mean_nats <= self.tolerance_nats:
            return None
        return (
            f"the trainer's log-probs of {parity.tokens} tokens differ from the engine's by {parity.mean_nats:.4g} "
            f"nats on average (largest {parity.max_nats:.4g}), more than {self.tolerance_nats:g}: weights, temperature "
            "or tokens are not the same on both sides"
        )


def pick(samples: Iterable[Sample], count: int, versions: Mapping[str, int]) -> list[Sample]:
    """Some rows that hold tokens of the present version; drawn by a hash of their trajectory."""
    fresh = [sample for sample in samples if _fresh(sample, versions.get(sample.policy, -1))[1:].any()]
    return sorted(fresh, key=lambda sample: draw(sample.trajectory))[:count]


def gap(sample: Sample, found: Floats, version: int) -> Floats:
    """Absolute differences on the trained tokens that `version` sampled.

    Args:
        sample: the row.
        found: float32 [T - 1], the trainer's log-probs of `token_ids[1:]`.
        version: the version that the trainer holds.

    Raises:
        ShapeError: `found` has another length.
    """
    if len(found) != len(sample.token_ids) - 1:
        raise ShapeError(f"{len(found)} log-probs for a row of {len(sample.token_ids)} tokens: expected one fewer")
    fresh = _fresh(sample, version)[1:]
    apart: Floats = np.abs(found[fresh] - sample.logprobs[1:][fresh])
    return apart


def draw(trajectory: str) -> bytes:
    """A number that decides whether a trajectory is looked at closely: other ones in each batch, the same each time."""
    return hashlib.blake2b(trajectory.encode(), digest_size=8).digest()


def _fresh(sample: Sample, version: int) -> Bools:
    fresh: Bools = sample.loss_mask & (sample.policy_versions == version)
    return fresh
