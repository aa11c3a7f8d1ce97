"""An index: built once, opened often, searched in each mode."""

import contextlib
import json
import shutil
import subprocess
import sys
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.lock", "index", "other.jsonl"]


def test_a_folder_with_anything_else_in_it_is_left_as_it_is(corpus: Path, tmp_path: Path):
    folder = tmp_path / "wiki"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / "wiki.jsonl").write_bytes(corpus.read_bytes())
    (folder / "manifest.json").write_text('{"name": "a web page, say"}')
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match=r"wiki holds 'manifest.json', which is no part of an index"):
        build(IndexConfig(corpus=folder / "wiki.jsonl"), folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ConfigError, match=r"wiki holds 'notes.txt', which is no part of an index"):
        build(IndexConfig(corpus=folder / "wiki.jsonl"), folder)
    del before["manifest.json"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["wiki"]


def test_what_was_laid_into_an_index_is_not_deleted_with_it(corpus: Path, tmp_path: Path):
    folder = build(IndexConfig(corpus=corpus), tmp_path / "index")
    own = folder / "passages-of-mine.jsonl"
    own.write_text('{"text": "something else"}\n')
    assert build(IndexConfig(corpus=corpus), folder) == folder
    with pytest.raises(ConfigError, match="holds 'passages-of-mine"):
        build(IndexConfig(corpus=own), folder)
    assert own.exists()
    assert len(Index(folder).passages) == 6


def test_an_index_of_another_format_is_replaced_and_a_link_to_its_folder_stays(corpus: Path, tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    folder = build(IndexConfig(corpus=corpus), tmp_path / "link")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    assert len(Index(build(IndexConfig(corpus=corpus), folder)).passages) == 6
    assert folder.is_symlink()


BUILD = """
import sys
from pathlib import Path
from agar.tool_servers.search.config import IndexConfig
from agar.tool_servers.search.index import Index, build
print("ready", flush=True)
sys.stdin.readline()
index = Index(build(IndexConfig(corpus=Path(sys.argv[1])), Path(sys.argv[2])))
print(len(index.passages), index.search_now(["fox"], count=1)[0][0].passage.id)
"""


def test_processes_that_build_one_index_at_once_all_find_it_whole(corpus: Path, tmp_path: Path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "something else"}\n')
    folder = build(IndexConfig(corpus=other), tmp_path / "index")
    command = [sys.executable, "-P", "-c", BUILD, str(corpus), str(folder)]
    with contextlib.ExitStack() as stack:
        some = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(3)
        ]
        for process in some:
            assert process.stdout.readline() == "ready\n"
        for process in some:
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=50)[0] for process in some]
    assert said == ["6 p0\n"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.lock", "index", "other.jsonl"]


def test_where_and_how_fast_the_model_runs_is_no_part_of_an_index(
    index_folder: Path, corpus: Path, embedder, tmp_path: Path
):
    folder = shutil.copytree(index_folder, tmp_path / "index")
    manifest = folder / "manifest.json"
    first, settings = manifest.stat().st_ino, json.loads(manifest.read_text())
    assert settings["dense"]["embedder"].keys().isdisjoint({"device", "texts_per_batch"})
    there = embedder.model_copy(update={"device": "cuda:7", "texts_per_batch": 3})
    build(IndexConfig(corpus=corpus, dense=DenseConfig(embedder=there)), folder)
    assert manifest.stat().st_ino == first
    settings["dense"]["embedder"]["device"] = "cuda:7"  # as older manifests have it
    manifest.write_text(json.dumps(settings))
    build(IndexConfig(corpus=corpus, dense=DenseConfig(embedder=embedder)), folder)
    assert manifest.stat().st_ino == first
    assert ids(Index(folder, mode="dense").search_now(["fox"], count=1)[0])
    with pytest.raises(ConfigError, match="cannot run on 'nowhere'"):
        Index(folder, mode="dense", device="nowhere")


def test_another_way_to_embed_is_another_index(corpus: Path, embedder, tmp_path: Path):
    folder = build(IndexConfig(corpus=corpus, dense=DenseConfig(embedder=embedder)), tmp_path / "index")
    first = (folder / "manifest.json").stat().st_ino
    cut = embedder.model_copy(update={"max_tokens": 8})
    build(IndexConfig(corpus=corpus, dense=DenseConfig(embedder=cut)), folder)
    assert json.loads((folder / "manifest.json").read_text())["dense"]["embedder"]["max_tokens"] == 8
    assert (folder / "manifest.json").stat().st_ino != first


def test_a_corpus_that_cannot_be_read_leaves_the_old_index_and_nothing_else(corpus: Path, tmp_path: Path):
    folder = build(IndexConfig(corpus=corpus), tmp_path / "index")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "fine"}\nnot json\n')
    with pytest.raises(ConfigError, match="line 2"):
        build(IndexConfig(corpus=bad), folder)
    assert len(Index(folder).passages) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == [".index.lock", "bad.jsonl", "index"]


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
