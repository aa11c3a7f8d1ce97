"""Settings of search."""

import pytest
from pydantic import ValidationError

from agar.config import resolve
from agar.tool_servers.search.config import IndexConfig, IndexSource, RetrieveSource, SearchConfig


def test_an_index_of_nothing_is_refused():
    with pytest.raises(ValidationError, match="set lexical = true, or dense"):
        IndexConfig(corpus="c.jsonl", lexical=False)


def test_a_source_is_told_by_its_type():
    words = ["--source.type=retrieve", "--source.url=http://127.0.0.1:8000"]
    config = resolve(SearchConfig, files=[], overrides=words).config
    assert config.source == RetrieveSource(type="retrieve", url="http://127.0.0.1:8000")


def test_a_url_without_a_scheme_is_refused():
    with pytest.raises(ValidationError):
        RetrieveSource(type="retrieve", url="127.0.0.1:8000")


def test_an_index_is_searched_where_that_is_said_or_else_where_it_is_built():
    def device(*words: str) -> str:
        given = [f"--source.{word}" for word in ("folder=i", *words)]
        source = resolve(SearchConfig, files=[], overrides=["--source.type=index", *given]).config.source
        assert isinstance(source, IndexSource)
        return source.search_device()

    built = ("build.corpus=c.jsonl", "build.dense.embedder.model=m", "build.dense.embedder.device=cuda")
    assert [device(), device(*built), device(*built, "device=cpu"), device("device=cuda:1")] == [
        "cpu",
        "cuda",
        "cpu",
        "cuda:1",
    ]
