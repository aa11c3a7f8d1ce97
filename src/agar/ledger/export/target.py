"""What every export has in common: it takes episodes one by one, and says by name what its shape has no place for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol

from agar.ledger.codec import plain
from agar.ledger.emission import Emission
from agar.ledger.trace import Trace
from agar.types import Ids, Sample


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Episode:
    """One episode on its way out.

    Attributes:
        batch: name of its trace file without the ending, for instance `step-000003`.
        number: its place in the export, from 0; the rows of one episode share it.
        trace: the record.
        emission: its training rows and what is in none of them.
    """

    batch: str
    number: int
    trace: Trace
    emission: Emission


class Target(Protocol):
    """Writes episodes in one shape; an instance writes one export."""

    unread: Mapping[str, str]
    """What the shape has no field for, and what becomes of it, by name."""

    def losses(self, episode: Episode) -> Iterable[str]:
        """Names in `unread` that this episode has something of."""
        ...

    def add(self, episode: Episode) -> int:
        """Take one episode; the episodes of a batch come together. Returns how many rows it became."""
        ...

    def close(self) -> int:
        """Write what is left. Returns how many files there are."""
        ...


def prompt_length(sample: Sample) -> int:
    """Tokens before the first reply: what other programs call the prompt; the response is everything after it."""
    spans = sample.meta.get("spans")
    return int(spans[0][1]) if spans else int(sample.loss_mask.argmax())


def provenance(episode: Episode, sample: Sample) -> dict[str, Any]:
    """What agar knows of a row and other programs have no field for, JSON-able.

    Per-token arrays are runs: `policy_versions` as [version, how many] from the row's first token on, `rewards` as
    [position, reward]. `spans` is (call, position, length) of each reply in the row, `excluded` is (call, start, stop,
    reason) of the sampled tokens of the whole episode that are not trained.
    """
    trace = episode.trace
    known: dict[str, Any] = {
        "batch": episode.batch,
        "trajectory": sample.trajectory,
        "group": [sample.group.task, sample.group.ordinal],
        "role": sample.role,
        "policy": sample.policy,
        "outcome": sample.outcome.value,
        "reason": trace.reason,
        "weight": sample.weight,
        "reward": sample.reward,
        "reward_parts": dict(trace.reward.parts),
        "rewards": [[int(at), float(sample.rewards[at])] for at in sample.rewards.nonzero()[0]],
        "policy_versions": runs(sample.policy_versions),
        "spans": plain(sample.meta.get("spans", [])),
        "excluded": [[run.node, run.start, run.stop, run.reason.value] for run in episode.emission.excluded],
        "task": plain(trace.task),
    }
    told: dict[str, Any] = finite(known)
    return told


def finite(value: Any) -> Any:
    """The value with numbers that strict JSON has no word for (NaN, infinities) as text."""
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value


def runs(values: Ids) -> list[list[int]]:
    """Equal neighbours as [value, how many]."""
    found: list[list[int]] = []
    for value in values.tolist():
        if found and found[-1][0] == value:
            found[-1][1] += 1
        else:
            found.append([value, 1])
    return found
