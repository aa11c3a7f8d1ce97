"""Saved traces, and the audit of them: what a trace file alone can prove, without an engine or a tokenizer."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from agar.errors import ConfigError, LedgerError
from agar.ledger.audit import audit
from agar.ledger.codec import version_of
from agar.ledger.config import RecordPolicy
from agar.ledger.emission import Exclusion, emit
from agar.ledger.node import Divergence
from agar.ledger.report import AuditReport, Violation
from agar.ledger.trace import VERSION, Trace

if TYPE_CHECKING:
    from agar.ledger.families.base import Family  # the package of families loads tokenizers


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTraces:
    """Trace files, and the ledger settings of the run that they belong to.

    Attributes:
        files: in order of their names.
        policy: the run's; the default one where a file stands alone.
        thinking: the run's switch for reasoning in chat templates; None leaves it to the template.
        today: the date that the run's chat templates wrote; None where nothing says.
    """

    files: tuple[Path, ...]
    policy: RecordPolicy
    thinking: bool | None = None
    today: date | None = None

    @classmethod
    def find(cls, target: Path) -> "SavedTraces":
        """The traces of a run folder (`traces/*.jsonl`), or one trace file.

        Raises:
            ConfigError: there are none, or the run's ledger settings cannot be read.
        """
        if target.is_file():
            return cls._of_run((target,), target.resolve().parent.parent)
        if not target.is_dir():
            raise ConfigError(f"there is no {target}: give a trace file, or the folder that a run printed")
        files = tuple(sorted((target / "traces").glob("*.jsonl")))
        if not files:
            raise ConfigError(f"{target} holds no traces/*.jsonl: give a run folder (run.keep_traces = true) or a file")
        return cls._of_run(files, target)

    @classmethod
    def _of_run(cls, files: tuple[Path, ...], folder: Path) -> "SavedTraces":
        ledger = _ledger(folder / "recipe.json")
        return cls(files=files, policy=ledger.record, thinking=ledger.thinking, today=ledger.today)

    def batches(self) -> "SavedTraces":
        """The files without those of evaluations, which nobody trained on.

        Raises:
            ConfigError: none is left.
        """
        files = tuple(file for file in self.files if not file.stem.startswith("eval-"))
        if not files:
            raise ConfigError(f"{self.files[0].parent} holds evaluations only: name one of its files")
        return replace(self, files=files)

    def traces(self) -> Iterator[tuple[Path, Trace]]:
        """Each file with each of its traces, in order.

        Raises:
            LedgerError: a line is no trace of this version; names the line.
        """
        for file in self.files:
            for number, line in _lines(file):
                try:
                    trace = Trace.load(line)
                except LedgerError as error:
                    raise LedgerError(f"{file.name}:{number}: {error}") from error
                yield file, trace

    def audit(self, families: "Mapping[str, Family] | None" = None) -> AuditReport:
        """Emit rows from every trace and check them, one trace at a time, so that memory stays small.

        Beside the checks of `agar.ledger.audit.audit`: I14, a line of the present format loads and dumps again to the
        very same bytes; and I2, no trajectory is in the training batches twice. The staleness bound needs the version
        that was being trained, which no trace holds, and is not checked.

        Args:
            families: for I6, policy name to its family; `"*"` stands for every other policy.
        """
        families = families or {}
        total = _Total()
        seen: dict[tuple[str, str, str, str], str] = {}
        for file in self.files:
            # The same held-out task is played in every evaluation; the batches of a run share one count of groups.
            scope = "batches" if file.stem.startswith("step-") else file.stem
            for number, line in _lines(file):
                where = f"{file.name}:{number}"
                try:
                    trace = Trace.load(line)
                except LedgerError as error:
                    total.say("I14", where, str(error))
                    continue
                if trace.dump() != line and version_of(line) == VERSION:
                    total.say("I14", trace.trajectory, f"{where} does not load and dump again to the same bytes")
                key = (scope, trace.trajectory, trace.role, trace.policy)
                if key in seen:
                    total.say("I2", trace.trajectory, f"{where} repeats the trajectory of {seen[key]}")
                seen[key] = where
                family = families.get(trace.policy, families.get("*"))
                mine = None if family is None else {trace.policy: family}
                total.add(audit([trace], emit(trace, self.policy), self.policy, families=mine))
        return total.report()


class _Total:
    """The sum of reports."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._excluded: Counter[Exclusion] = Counter()
        self._divergences: Counter[Divergence] = Counter()
        self._looked_at: Counter[str] = Counter()
        self._unchecked: dict[str, str] = {"I3": "scoring again needs the weights that were being trained"}
        self._violations: list[Violation] = []

    def say(self, invariant: str, trajectory: str, detail: str) -> None:
        self._violations.append(Violation(invariant=invariant, trajectory=trajectory, detail=detail))

    def add(self, report: AuditReport) -> None:
        for name in _COUNTS:
            self._counts[name] += getattr(report, name)
        self._excluded.update(report.excluded)
        self._divergences.update(report.divergences)
        self._looked_at.update(report.looked_at)
        self._unchecked |= report.unchecked
        self._violations += report.violations

    def report(self) -> AuditReport:
        return AuditReport(
            traces=self._counts["traces"],
            samples=self._counts["samples"],
            sampled_tokens=self._counts["sampled_tokens"],
            trained_tokens=self._counts["trained_tokens"],
            lost_turn_rewards=self._counts["lost_turn_rewards"],
            excluded=dict(self._excluded),
            divergences=dict(self._divergences),
            looked_at=dict(self._looked_at),
            unchecked=dict(self._unchecked),
            violations=tuple(self._violations),
        )


_COUNTS: Sequence[str] = ("traces", "samples", "sampled_tokens", "trained_tokens", "lost_turn_rewards")


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file without their ends, and their numbers, from 1."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.removesuffix(b"\n")


class _Ledger(BaseModel):
    """What of a recipe's ledger settings says how its traces are read; the rest is not looked at."""

    record: RecordPolicy = RecordPolicy()
    thinking: bool | None = None
    today: date | None = None


def _ledger(recipe: Path) -> _Ledger:
    if not recipe.is_file():
        return _Ledger()
    try:
        return _Ledger.model_validate(json.loads(recipe.read_text("utf-8")).get("ledger", {}))
    except (OSError, ValueError, AttributeError, ValidationError) as error:
        raise ConfigError(f"the ledger settings of {recipe} cannot be read ({error}): mend or move it") from error
