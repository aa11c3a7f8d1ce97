"""An index on disk: passages, words, vectors. Built once, then opened as often as needed and mapped into memory.

A folder holds `manifest.json` (what it was built from, and how), the passages, and, where they were asked for,
`lexical/` and `dense/`.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agar.errors import ConfigError
from agar.tool_servers.background import in_thread
from agar.tool_servers.search import dense, lexical, passages, place
from agar.tool_servers.search.base import Hit
from agar.tool_servers.search.config import DenseConfig, IndexConfig, Mode
from agar.tool_servers.search.fusion import fuse

FORMAT = 1
MANIFEST = "manifest.json"
LEXICAL, DENSE = "lexical", "dense"
PARTS = frozenset({MANIFEST, passages.TEXTS, passages.STARTS, LEXICAL, DENSE})
"""All that an index's folder holds."""
_RUN_TIME = {"embedder": {"device", "texts_per_batch"}}
"""Settings that leave an index what it is: one that was built on a GPU is searched without."""


class Index:
    """A `Retriever` over a built index.

    Args:
        folder: where `build` put it.
        mode: by words, by vectors, or by both.
        fused: passages of each kind that `hybrid` fuses.
        device: where the model that embeds queries runs, wherever it ran to build.

    Raises:
        ConfigError: there is no index, it lacks what the mode needs, or there is no such device.
        MissingExtraError: a package that the mode needs is not installed.
    """

    def __init__(self, folder: Path, *, mode: Mode = "lexical", fused: int = 100, device: str = "cpu") -> None:
        built = _manifest(folder)
        self.passages = passages.PassageStore(folder)
        self._fused = fused
        self._ranks: list[Callable[..., list[lexical.Ranked]]] = []
        if mode in ("lexical", "hybrid"):
            if not built["lexical"]:
                raise ConfigError(f"{folder} has no words for mode {mode!r}: build it with lexical = true")
            self._ranks.append(lexical.LexicalIndex(folder / LEXICAL).rank)
        if mode in ("dense", "hybrid"):
            if built["dense"] is None:
                raise ConfigError(f"{folder} has no vectors for mode {mode!r}: build it with dense")
            settings = DenseConfig.model_validate(built["dense"])
            embedder = settings.embedder.model_copy(update={"device": device})
            here = settings.model_copy(update={"embedder": embedder})
            self._ranks.append(dense.DenseIndex(folder / DENSE, here).rank)

    async def search(self, queries: Sequence[str], *, count: int) -> list[list[Hit]]:
        """See `Retriever.search`."""
        return await in_thread(lambda: self.search_now(queries, count=count), name="agar-search")

    def search_now(self, queries: Sequence[str], *, count: int) -> list[list[Hit]]:
        """The same, without an event loop."""
        if len(self._ranks) == 1:
            ranked = self._ranks[0](queries, count=count)
        else:
            each = [rank(queries, count=max(count, self._fused)) for rank in self._ranks]
            ranked = [fuse(rankings, count=count) for rankings in zip(*each, strict=True)]
        return [[Hit(passage=self.passages[row], score=score) for row, score in found] for found in ranked]


def build(config: IndexConfig, folder: Path) -> Path:
    """Build an index, unless the folder holds the same one already.

    Args:
        config: the corpus, and what to make of it.
        folder: made whole or not at all. An index of something else is replaced; nothing else is.

    Returns:
        `folder`.

    Raises:
        ConfigError: the corpus or the model cannot be read, or the folder holds something that is no index.
        DeadlineError: another process kept the folder locked.
        MissingExtraError: a package is not installed.
    """
    wanted = _wanted(config)
    if _holds(folder, wanted):
        return folder
    at = folder.resolve()  # a link to a folder stays one
    place.check(at, ours=_ours(at))
    at.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{at.name}.", dir=at.parent))
    try:
        count = passages.write(fresh, passages.read(config.corpus))
        store = passages.PassageStore(fresh)
        if config.lexical:
            (fresh / LEXICAL).mkdir()
            lexical.build(fresh / LEXICAL, _contents(store))
        if config.dense is not None:
            (fresh / DENSE).mkdir()
            dense.build(fresh / DENSE, _contents(store), config.dense)
        (fresh / MANIFEST).write_text(json.dumps({**wanted, "passages": count}, indent=2) + "\n")
        place.put(fresh, at, held=lambda: _holds(at, wanted), ours=lambda: _ours(at))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _contents(store: passages.PassageStore) -> Iterator[str]:
    return (store[row].contents for row in range(len(store)))


def _wanted(config: IndexConfig) -> dict[str, Any]:
    try:
        with config.corpus.open("rb") as file:
            digest = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    except OSError as error:
        raise ConfigError(f"cannot read the corpus {config.corpus} ({error.strerror}): check the path") from error
    dense_settings = None if config.dense is None else config.dense.model_dump(mode="json", exclude=_RUN_TIME)
    return {"format": FORMAT, "corpus": digest, "lexical": config.lexical, "dense": dense_settings}


def _holds(folder: Path, wanted: dict[str, Any]) -> bool:
    try:
        found = _manifest(folder)
    except ConfigError:
        return False
    return _agrees(found, wanted)


def _agrees(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is found; what else is there (older manifests name a device) does not matter."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_agrees(found.get(key), value) for key, value in wanted.items())
    return bool(found == wanted)


def _ours(folder: Path) -> frozenset[str]:
    """What of a folder is an index's, of whatever format."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return frozenset()
    return PARTS if isinstance(found, dict) and {"format", "corpus", "passages"} <= found.keys() else frozenset()


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} holds no index ({error}): build one there") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ConfigError(f"{folder} holds an index of another format than {FORMAT}: build it again")
    return found
