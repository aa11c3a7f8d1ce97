"""Exports saved traces: which of them, into which shape, and what came of it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agar.errors import ConfigError
from agar.ledger.emission import emission
from agar.ledger.export.atif import AtifTarget
from agar.ledger.export.parquet import ParquetTarget
from agar.ledger.export.slime import SlimeTarget
from agar.ledger.export.target import Episode, Target
from agar.ledger.export.verl import VerlTarget
from agar.ledger.saved import SavedTraces

TARGETS: Mapping[str, Callable[[Path], Target]] = {
    "slime": SlimeTarget,
    "verl": VerlTarget,
    "atif": AtifTarget,
    "parquet": ParquetTarget,
}
"""The shapes, by name; each is made with the folder that it writes into."""
ONE_POLICY = frozenset({"slime", "verl"})
"""Shapes that another program trains one model on, without looking whose tokens they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export came to.

    Attributes:
        files: files written.
        episodes: episodes read.
        rows: rows (training rows, or documents) written.
        without_rows: episodes that became no row, by the reason why nothing of them is trained.
        unread: what the shape has no place for: name to how it is told, of what these episodes have.
        concerned: name to how many episodes have it.
    """

    files: int
    episodes: int
    rows: int
    without_rows: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    concerned: Mapping[str, int] = field(default_factory=dict)


def export(saved: SavedTraces, to: str, out: Path, *, policy: str | None = None) -> ExportReport:
    """Write saved traces in another program's shape, one trace at a time.

    The rows are emitted again from the stored ids, under the run's own record policy; what was left out for its
    staleness during the run is in them, since no trace holds the version that was being trained.

    Args:
        saved: the traces.
        to: a name of `TARGETS`.
        out: the folder to write into; it is made, and must be empty.
        policy: whose traces to take; None takes all, where the shape may mix policies or there is one only.

    Raises:
        ConfigError: the shape is unknown, the folder is not empty or cannot be made, or the policy must be named or is
            not among the traces.
        LedgerError: a line is no trace of this version.
        MissingExtraError: the shape needs a package that is not installed.
    """
    if to not in TARGETS:
        raise ConfigError(f"there is no export to {to!r}: name one of {', '.join(TARGETS)}")
    if policy is not None or to in ONE_POLICY:
        _require(policy, sorted({trace.policy for _, trace in saved.traces()}), to)
    _make(out)
    target = TARGETS[to](out)
    episodes = rows = 0
    without: Counter[str] = Counter()
    concerned: Counter[str] = Counter()
    for file, trace in saved.traces():
        if policy is not None and trace.policy != policy:
            continue
        episode = Episode(batch=file.stem, number=episodes, trace=trace, emission=emission(trace, saved.policy))
        episodes += 1
        added = target.add(episode)
        rows += added
        concerned.update(target.losses(episode))
        if not added:
            reasons = {run.reason.value for run in episode.emission.excluded}
            without[", ".join(sorted(reasons)) or "no model call"] += 1
    files = target.close()
    return ExportReport(
        files=files,
        episodes=episodes,
        rows=rows,
        without_rows=dict(without),
        unread={name: target.unread[name] for name in concerned},
        concerned=dict(concerned),
    )


def _require(policy: str | None, found: list[str], to: str) -> None:
    if policy is None and len(found) > 1:
        raise ConfigError(f"{to} trains one policy and these traces are of {', '.join(found)}: choose one (--policy)")
    if policy is not None and policy not in found:
        raise ConfigError(f"no trace is of policy {policy!r}: there are {', '.join(found) or 'none'}")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        taken = any(out.iterdir())
    except OSError as error:
        raise ConfigError(f"cannot write into {out} ({error.strerror}): give another folder") from error
    if taken:
        raise ConfigError(f"{out} is not empty: give a new folder, so that two exports are not mixed up")
