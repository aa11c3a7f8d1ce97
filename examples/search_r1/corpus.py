"""The corpus and the tasks, made offline from the running Python's standard library.

    python -m agar.examples.search_r1.corpus DIR [--seed 1] [--invented 8]

writes passages, an index and the questions of both splits, as `.jsonl`.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from agar.envs.tasks import TaskSet, check_split
from agar.envs.tasks.columns import TaskColumns
from agar.envs.tasks.files import JsonLines
from agar.examples.search_r1 import library
from agar.examples.search_r1.invented import invent
from agar.examples.search_r1.library import Definition
from agar.examples.search_r1.questions import Question, passages, questions
from agar.tool_servers.search.config import IndexConfig
from agar.tool_servers.search.index import Index, build

NAMES = 400
"""Names that are asked about, of which the real library's corpus holds more."""
INVENTED = 64
"""Invented libraries to warm up on."""
_REVISION = 3
"""Goes up when other passages or questions are made of the same library."""


def make(folder: Path, *, seed: int = 1, invented: int = 0) -> Path:
    """Write corpus, index and tasks; the same ones for the same Python and seed.

    Args:
        folder: made if missing.
        seed: of the choice and the order of the questions, and of what is invented.
        invented: how many invented libraries to make in the place of the real one.

    Returns:
        `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    real = library.definitions()
    some = library.chosen(real, names=NAMES)
    if invented:
        shelves = [(made, made) for made in (invent(some, seed=seed + number) for number in range(invented))]
    else:
        shelves = [(real, some)]
    asked = [_shelf(folder, f"index-{number}", *shelf, seed=seed) for number, shelf in enumerate(shelves)]
    for split in ("train", "heldout"):
        rows = (
            _row(question, f"index-{number}")
            for number, found in enumerate(asked)
            for question in found
            if question.split == split
        )
        _write(folder / f"{split}.jsonl", rows)
    return folder


def _shelf(
    folder: Path, name: str, found: Sequence[Definition], asked: Sequence[Definition], *, seed: int
) -> list[Question]:
    """Index what was found, and ask about some of it."""
    corpus = folder / f"{name}.jsonl"
    _write(corpus, ({"id": passage.id, "text": passage.text} for passage in passages(found)))
    return questions(asked, Index(build(IndexConfig(corpus=corpus), folder / name)), seed=seed)


def _row(question: Question, index: str) -> dict[str, object]:
    payload = {"answer": question.answer, "hops": question.hops, "kind": question.kind, "index": index}
    return {"key": f"{index}/{question.kind}/{question.about}", "prompt": question.text, "payload": payload}


def _write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def cached(*, invented: bool = False) -> Path:
    """The corpus of the running Python in the cache (`$AGAR_CACHE`, else `~/.cache/agar`), made on first use."""
    cache = Path(os.environ.get("AGAR_CACHE") or Path.home() / ".cache" / "agar")
    kind = "invented" if invented else "python"
    folder = cache / "search_r1" / f"{kind}-{library.version()}-{_REVISION}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            make(fresh, invented=INVENTED if invented else 0)
            os.rename(fresh, folder)
        except OSError:
            if not folder.exists():  # else another process made it meanwhile
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return folder


def tasks(split: str) -> TaskSet:
    """The questions of a split; no name is asked about in both.

    Raises:
        ConfigError: the split is unknown.
    """
    return _tasks(cached(), split)


def invented_tasks(split: str) -> TaskSet:
    """Questions about the invented libraries.

    Raises:
        ConfigError: the split is unknown.
    """
    return _tasks(cached(invented=True), split)


def _tasks(folder: Path, split: str) -> TaskSet:
    return JsonLines(folder / f"{check_split(split)}.jsonl", TaskColumns(key="key"), split=split)


def main() -> None:
    """Make the corpus from the command line."""
    parser = argparse.ArgumentParser(description="Make a corpus and questions from Python's standard library.")
    parser.add_argument("directory", type=Path, help="where to write them")
    parser.add_argument("--seed", type=int, default=1, help="of the choice and order of the questions")
    parser.add_argument("--invented", type=int, default=0, help="make so many invented libraries instead")
    arguments = parser.parse_args()
    print(make(arguments.directory, seed=arguments.seed, invented=arguments.invented))


if __name__ == "__main__":
    main()
