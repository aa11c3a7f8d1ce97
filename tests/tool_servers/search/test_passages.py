"""Corpora in every shape that is read, and passages by number."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from agar.errors import ConfigError
from agar.tool_servers.search.base import Passage
from agar.tool_servers.search.passages import PassageStore, read, write


def jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_of_every_shape_are_passages(tmp_path):
    corpus = jsonl(
        tmp_path / "c.jsonl",
        {"id": 7, "title": "Fox", "text": "Quick."},
        {"text": "No title, no id."},
        {"id": "2", "contents": '"Dog"\nLazy.\nVery.'},
    )
    assert list(read(corpus)) == [
        Passage(id="7", title="Fox", text="Quick."),
        Passage(id="1", text="No title, no id."),
        Passage(id="2", title="Dog", text="Lazy.\nVery."),
    ]


def test_half_a_surrogate_pair_in_a_corpus_is_replaced_and_the_rest_of_it_indexed(tmp_path):
    corpus = jsonl(tmp_path / "c.jsonl", {"id": "\ud800", "title": "T\udfff", "text": "a \ud800 b"}, {"text": "whole"})
    assert write(tmp_path, read(corpus)) == 2
    assert PassageStore(tmp_path)[0] == Passage(id="?", title="T?", text="a ? b")


def test_parquet_is_read_as_json_lines_are(tmp_path):
    rows = [{"id": str(n), "title": f"t{n}", "text": f"text {n}"} for n in range(2500)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "c.parquet", row_group_size=700)
    assert list(read(tmp_path / "c.parquet")) == list(read(jsonl(tmp_path / "c.jsonl", *rows)))


def test_passages_come_back_by_number_from_a_mapped_file(tmp_path):
    some = [Passage(id=str(n), title="T" * (n % 3), text=f"line\n{n} ü 漢 \u2028") for n in range(50)]
    assert write(tmp_path, some) == 50
    store = PassageStore(tmp_path)
    assert len(store) == 50
    assert [store[number] for number in range(50)] == some
    assert store[-1] == some[-1]
    with pytest.raises(IndexError):
        store[50]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("not json\n", "line 1 is not JSON"),
        ('{"text": "a"}\n[1]\n', "row 1 must be an object with text"),
        ('{"title": "only"}\n', "row 0 must be an object with text"),
        ('{"text": 3}\n', "row 0 must be an object with text"),
        ('{"text": "a", "title": 3}\n', "row 0 must be an object with text"),
    ],
)
def test_what_is_no_corpus_is_refused_with_the_place(tmp_path, lines, said):
    path = tmp_path / "c.jsonl"
    path.write_text(lines)
    with pytest.raises(ConfigError, match=said):
        list(read(path))


def test_an_empty_corpus_a_missing_file_and_another_suffix_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no passage"):
        write(tmp_path, [])
    with pytest.raises(ConfigError, match="cannot read the corpus"):
        list(read(tmp_path / "nowhere.jsonl"))
    with pytest.raises(ConfigError, match="cannot read the corpus"):
        list(read(tmp_path / "nowhere.parquet"))
    with pytest.raises(ConfigError, match=r"a \.jsonl or a \.parquet file"):
        list(read(tmp_path / "corpus.csv"))


def test_a_file_that_changed_behind_the_index_is_refused(tmp_path):
    write(tmp_path, [Passage(id="1", text="one")])
    with (tmp_path / "passages.jsonl").open("a") as file:
        file.write("more\n")
    with pytest.raises(ConfigError, match="changed since it was indexed"):
        PassageStore(tmp_path)
    with pytest.raises(ConfigError, match="holds no passages"):
        PassageStore(tmp_path / "nowhere")
