"""An index: built once, opened often, searched in each mode."""

import json
from pathlib import Path

import pytest

from agar.errors import ConfigError
from agar.tool_servers.search.config import DenseConfig, IndexConfig
from agar.tool_servers.search.index import Index, build


def ids(found):
    return [hit.passage.id for hit in found]


async def test_words_are_searched_in_titles_and_texts_and_passages_come_back_whole(index_folder: Path):
    fox, untitled, unicode = await Index(index_folder).search(["fox", "without title", "漢字 wörds"], count=2)
    assert ids(fox) == ["p0", "p2"]
    assert ids(untitled)[0] == "p3"
    assert unicode[0].passage.text == "Größe und naïveté: ünïcode wörds, 漢字."
    assert fox[0].score > fox[1].score > 0


async def test_vectors_find_the_text_itself_first_and_hybrid_finds_what_both_know(index_folder: Path):
    query = "Dog A lazy dog sleeps all day in the sun."
    for mode in ("dense", "hybrid"):
        [found] = await Index(index_folder, mode=mode).search([query], count=3)
        assert found[0].passage.id == "p1", mode
        assert len(found) == 3
    [nothing] = await Index(index_folder, mode="hybrid").search([""], count=3)
    assert nothing == []


def test_the_same_index_is_not_built_again_and_another_one_is(corpus: Path, tmp_path: Path):
    folder = build(IndexConfig(corpus=corpus), tmp_path / "index")
    first = (folder / "manifest.json").stat().st_ino
    assert build(IndexConfig(corpus=corpus), folder) == folder
    assert (folder / "manifest.json").stat().st_ino == first
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "something else"}\n')
    build(IndexConfig(corpus=other), folder)
    assert len(Index(folder).passages) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_corpus_that_cannot_be_read_leaves_the_old_index_and_nothing_else(corpus: Path, tmp_path: Path):
    folder = build(IndexConfig(corpus=corpus), tmp_path / "index")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "fine"}\nnot json\n')
    with pytest.raises(ConfigError, match="line 2"):
        build(IndexConfig(corpus=bad), folder)
    assert len(Index(folder).passages) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "index"]


def test_what_an_index_lacks_is_said(corpus: Path, embedder, tmp_path: Path):
    words = build(IndexConfig(corpus=corpus), tmp_path / "words")
    with pytest.raises(ConfigError, match="has no vectors for mode 'hybrid'"):
        Index(words, mode="hybrid")
    vectors = build(IndexConfig(corpus=corpus, lexical=False, dense=DenseConfig(embedder=embedder)), tmp_path / "v")
    with pytest.raises(ConfigError, match="has no words for mode 'lexical'"):
        Index(vectors)
    with pytest.raises(ConfigError, match="holds no index"):
        Index(tmp_path)
    manifest = json.loads((words / "manifest.json").read_text())
    (words / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ConfigError, match="another format"):
        Index(words)


async def test_many_searches_at_once_give_what_one_after_another_gives(index_folder: Path):
    import asyncio

    index = Index(index_folder)
    queries = ["fox", "dog", "sun", "copy", "day"] * 20
    alone = index.search_now(queries, count=3)
    together = await asyncio.gather(*(index.search([query], count=3) for query in queries))
    assert [found for [found] in together] == alone
