"""The passages of a corpus: read from its files once, then found again by number in a mapped file."""

import json
import mmap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.errors import ConfigError, MissingExtraError, to_install
from agar.tool_servers.search.base import Passage
from agar.tool_servers.text import sendable

TEXTS, STARTS = "passages.jsonl", "starts.npy"


class PassageStore:
    """Passages by number; the file is mapped into memory, so that only what is read takes any.

    Args:
        folder: where `write` put them.

    Raises:
        ConfigError: the files are missing or do not belong together.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._starts: npt.NDArray[np.int64] = np.load(folder / STARTS, mmap_mode="r")
            with (folder / TEXTS).open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder} holds no passages ({error}): build the index again") from error
        if int(self._starts[-1]) != len(self._bytes):
            raise ConfigError(f"{folder / TEXTS} changed since it was indexed: build the index again")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> Passage:
        place = range(len(self))[number]
        row = json.loads(self._bytes[int(self._starts[place]) : int(self._starts[place + 1])])
        return Passage(id=row["id"], title=row["title"], text=row["text"])


def write(folder: Path, passages: Iterable[Passage]) -> int:
    """Store passages; how many there were.

    Raises:
        ConfigError: there is none.
    """
    starts = [0]
    with (folder / TEXTS).open("wb") as file:
        for passage in passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text}
            starts.append(starts[-1] + file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n"))
    if len(starts) == 1:
        raise ConfigError("the corpus holds no passage: name a file with some")
    np.save(folder / STARTS, np.array(starts, dtype=np.int64))
    return len(starts) - 1


def read(corpus: Path) -> Iterator[Passage]:
    """The passages of a `.jsonl` or `.parquet` file.

    A row has `text`, and perhaps `title`; or `contents`, whose first line is the title, as Search-R1's corpora have it.
    `id` is its place in the file where it has none.

    Raises:
        ConfigError: the file cannot be read, or a row is no passage.
        MissingExtraError: it is a parquet file, and pyarrow is not installed.
    """
    rows = {".jsonl": _json_rows, ".parquet": _parquet_rows}.get(corpus.suffix)
    if rows is None:
        raise ConfigError(f"{corpus}: a corpus is a .jsonl or a .parquet file")
    for number, row in enumerate(rows(corpus)):
        yield _passage(row, number, corpus)


def _json_rows(corpus: Path) -> Iterator[Any]:
    try:
        with corpus.open("rb") as file:
            for number, line in enumerate(file):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except ValueError as error:
                        raise ConfigError(f"{corpus} line {number + 1} is not JSON: {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read the corpus {corpus} ({error.strerror}): check the path") from error


def _parquet_rows(corpus: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(f"a corpus in parquet needs pyarrow: {to_install('data')}") from error
    try:
        with pyarrow.parquet.ParquetFile(corpus) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"cannot read the corpus {corpus} ({error}): check the path") from error


def _passage(row: Any, number: int, corpus: Path) -> Passage:
    if isinstance(row, Mapping):
        title, text = row.get("title") or "", row.get("text")
        if text is None and isinstance(row.get("contents"), str):
            title, _, text = row["contents"].partition("\n")
            title = title.strip('"')
        if isinstance(text, str) and isinstance(title, str):
            return Passage(id=sendable(str(row.get("id", number))), title=sendable(title), text=sendable(text))
    raise ConfigError(f"{corpus} row {number} must be an object with text, or contents, got {str(row)[:80]}")
