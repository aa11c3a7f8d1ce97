"""A small corpus, and indexes of it."""

import json
from pathlib import Path

import pytest

from agar.tool_servers.search.config import DenseConfig, EmbedderConfig, IndexConfig
from agar.tool_servers.search.index import build
from agar.tool_servers.search.toy import make_embedder

TEXTS = [
    ("Fox", "The quick brown fox jumps over the lazy dog."),
    ("Dog", "A lazy dog sleeps all day in the sun."),
    ("Sun", "The sun is a star; foxes do not care."),
    ("", "Passages without a title are searched as well."),
    ("Copy", "shutil.copy_tree copies whole trees of files."),
    ("Unicode", "Größe und naïveté: ünïcode wörds, 漢字."),
]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "passages.jsonl"
    rows = [{"id": f"p{number}", "title": title, "text": text} for number, (title, text) in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> EmbedderConfig:
    texts = [f"{title} {text} query passage" for title, text in TEXTS]
    return EmbedderConfig(
        model=make_embedder(tmp_path_factory.mktemp("model"), texts), query_prefix="query: ", passage_prefix="passage: "
    )


@pytest.fixture(scope="session")
def index_folder(corpus: Path, embedder: EmbedderConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = IndexConfig(corpus=corpus, dense=DenseConfig(embedder=embedder))
    return build(config, tmp_path_factory.mktemp("built") / "index")
