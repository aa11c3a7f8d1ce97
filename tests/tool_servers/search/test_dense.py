"""Vectors: exact search against numpy, the graph against exact search."""

from pathlib import Path

import numpy as np
import pytest

from agar.errors import ConfigError
from agar.tool_servers.search import dense
from agar.tool_servers.search.config import DenseConfig, EmbedderConfig
from agar.tool_servers.search.embedder import Embedder
from agar.tool_servers.search.toy import make_embedder

WORDS = [f"word{n}" for n in range(60)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(WORDS, size=6)) for _ in range(300)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> EmbedderConfig:
    return EmbedderConfig(model=make_embedder(tmp_path_factory.mktemp("model"), WORDS))


def built(folder: Path, texts: list[str], config: DenseConfig) -> dense.DenseIndex:
    dense.build(folder, texts, config)
    return dense.DenseIndex(folder, config)


def test_flat_search_is_the_brute_force_answer(tmp_path, texts, model):
    index = built(tmp_path, texts, DenseConfig(embedder=model))
    queries = texts[:20]
    embedder = Embedder(model)
    products = embedder.queries(queries) @ embedder.passages(texts).T
    for place, ranked in enumerate(index.rank(queries, count=5)):
        assert [score for _, score in ranked] == pytest.approx(np.sort(products[place])[::-1][:5], abs=1e-5)
        assert [products[place, row] for row, _ in ranked] == pytest.approx([score for _, score in ranked], abs=1e-5)
        assert texts[ranked[0][0]].split() == pytest.approx(queries[place].split()) or ranked[0][1] > 0.999


def test_the_graph_finds_nearly_all_that_flat_search_finds(tmp_path, texts, model):
    flat = built(tmp_path, texts, DenseConfig(embedder=model)).rank(texts[:50], count=3)
    (tmp_path / "graph").mkdir()
    graph = built(tmp_path / "graph", texts, DenseConfig(embedder=model, structure="hnsw")).rank(texts[:50], count=3)
    found = [len({row for row, _ in a} & {row for row, _ in b}) for a, b in zip(flat, graph, strict=True)]
    assert sum(found) / (3 * len(found)) >= 0.95


def test_a_blank_query_finds_nothing_and_no_more_is_found_than_there_is(tmp_path, model):
    index = built(tmp_path, WORDS[:4], DenseConfig(embedder=model))
    blank, all_of_them = index.rank(["  ", "word1"], count=10)
    assert blank == []
    assert sorted(row for row, _ in all_of_them) == [0, 1, 2, 3]


def test_an_index_of_another_model_or_none_is_refused(tmp_path, model):
    import faiss

    with pytest.raises(ConfigError, match="no vectors"):
        dense.DenseIndex(tmp_path, DenseConfig(embedder=model))
    faiss.write_index(faiss.IndexFlatIP(7), str(tmp_path / "vectors.faiss"))
    with pytest.raises(ConfigError, match="vectors of 7 numbers"):
        dense.DenseIndex(tmp_path, DenseConfig(embedder=model))
