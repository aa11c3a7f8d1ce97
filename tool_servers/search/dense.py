"""Search by meaning: vectors of passages in an index of FAISS's, which is mapped into memory."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agar.errors import ConfigError, MissingExtraError, to_install
from agar.tool_servers.search.config import DenseConfig
from agar.tool_servers.search.embedder import Embedder
from agar.tool_servers.search.lexical import Ranked

VECTORS = "vectors.faiss"


class DenseIndex:
    """The passages whose vectors have the largest inner product with the query's; vectors have length 1.

    Args:
        folder: where `build` put it, or one with an index of FAISS's own as `vectors.faiss`, such as Search-R1's
            `e5_Flat.index`, over the same passages in the same order.
        config: as it was built.

    Raises:
        ConfigError: there is no index, or its vectors are not those of the model.
        MissingExtraError: faiss, torch or transformers is not installed.
    """

    def __init__(self, folder: Path, config: DenseConfig) -> None:
        faiss = _faiss()
        self._embedder = Embedder(config.embedder)
        try:
            self._vectors: Any = faiss.read_index(str(folder / VECTORS), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise ConfigError(f"{folder} holds no vectors ({error}): build the index again") from error
        if self._vectors.d != self._embedder.dimension:
            raise ConfigError(
                f"{folder} holds vectors of {self._vectors.d} numbers, {config.embedder.model} makes "
                f"{self._embedder.dimension}: name the model that it was built with"
            )
        if config.structure == "hnsw":
            self._vectors.hnsw.efSearch = config.effort

    def rank(self, queries: Sequence[str], *, count: int) -> list[Ranked]:
        """The nearest passages for each query; a blank one has none."""
        asked = [place for place, query in enumerate(queries) if query.strip()]
        ranked: list[Ranked] = [[] for _ in queries]
        if asked:
            scores, rows = self._vectors.search(self._embedder.queries([queries[place] for place in asked]), count)
            for place, near, found in zip(asked, scores.tolist(), rows.tolist(), strict=True):
                ranked[place] = [(row, score) for row, score in zip(found, near, strict=True) if row >= 0]
        return ranked


def build(folder: Path, contents: Iterable[str], config: DenseConfig) -> None:
    """Embed texts and index their vectors; the number of each is its place among them.

    Raises:
        ConfigError: the model cannot be read.
        MissingExtraError: faiss, torch or transformers is not installed.
    """
    faiss = _faiss()
    embedder = Embedder(config.embedder)
    if config.structure == "flat":
        vectors = faiss.IndexFlatIP(embedder.dimension)
    else:
        vectors = faiss.IndexHNSWFlat(embedder.dimension, config.neighbours, faiss.METRIC_INNER_PRODUCT)
        vectors.hnsw.efConstruction = config.effort
    for some in _batches(contents, config.embedder.texts_per_batch):
        vectors.add(embedder.passages(some))
    faiss.write_index(vectors, str(folder / VECTORS))


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    source = iter(texts)
    while some := list(itertools.islice(source, size)):
        yield some


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError(f"dense search needs faiss: {to_install('search')}") from error
    return faiss
