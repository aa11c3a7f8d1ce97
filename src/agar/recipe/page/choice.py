"""Which episodes of a run a page shows: a page of all would not open where there are many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of one trace file that is shown.

    Attributes:
        file: the file.
        total: traces in it.
        shown: how many of them are shown: the first ones, which are whole groups.
    """

    file: Path
    total: int
    shown: int

    def lines(self) -> Iterator[bytes]:
        """The lines that are shown, without their ends."""
        with self.file.open("rb") as lines:
            left = self.shown
            for line in lines:
                if not line.strip():
                    continue
                if left == 0:
                    return
                left -= 1
                yield line.removesuffix(b"\n")


def choose(files: Sequence[Path], limit: int) -> list[Share]:
    """Share `limit` episodes evenly among the files; what a short file does not need, the others get.

    Where there are more files than episodes, files at even distances give one each, the last of them included.
    """
    totals = {file: _count(file) for file in files}
    shown = dict.fromkeys(files, 0)
    left = min(limit, sum(totals.values()))
    while left:
        open_files = [file for file in files if shown[file] < totals[file]]
        if left < len(open_files):
            for index in range(left):
                shown[open_files[(index + 1) * len(open_files) // left - 1]] += 1
            break
        share = left // len(open_files)
        for file in open_files:
            more = min(share, totals[file] - shown[file])
            shown[file] += more
            left -= more
    return [Share(file=file, total=totals[file], shown=shown[file]) for file in files]


def _count(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for line in lines if line.strip())
