"""Task sets from files."""

import json

import pytest

from agar.envs.tasks import TaskSet
from agar.envs.tasks.columns import TaskColumns
from agar.envs.tasks.files import JsonLines, Parquet
from agar.errors import ConfigError

ROWS = [{"prompt": f"{n} + {n}? caf\u00e9 \u2028", "answer": 2 * n} for n in range(5)]


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS), "utf-8")
    return path


@pytest.fixture(params=["jsonl", "parquet"])
def tasks(request, lines, tmp_path):
    if request.param == "jsonl":
        return JsonLines(lines, TaskColumns(), env="Sums-v0")
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "sums.parquet")
    return Parquet(tmp_path / "sums.parquet", TaskColumns(), env="Sums-v0")


def test_rows_are_those_of_the_file(tasks):
    assert isinstance(tasks, TaskSet)
    assert len(tasks) == 5
    assert [(row.prompt, dict(row.payload)) for row in (tasks[4], tasks[0], tasks[-2])] == [
        (ROWS[n]["prompt"], {"answer": 2 * n}) for n in (4, 0, 3)
    ]
    assert (tasks[1].key, tasks[-1].key, tasks[1].env) == ("sums/1", "sums/4", "Sums-v0")
    with pytest.raises(IndexError):
        tasks[5]


@pytest.mark.parametrize(("line", "said"), [(b"{", "row 1 is not JSON"), (b"[1]", "must be a JSON object, got list")])
def test_a_bad_line_is_named(tmp_path, line, said):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"{}\n" + line + b"\n")
    with pytest.raises(ConfigError, match=said):
        JsonLines(path, TaskColumns())[1]


def test_a_file_that_changes_is_not_read_on(lines):
    tasks = JsonLines(lines, TaskColumns())
    with lines.open("a") as file:
        file.write("\n{}\n")
    with pytest.raises(ConfigError, match="changed while its tasks were in use"):
        tasks[0]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.jsonl"):
        JsonLines(tmp_path / "nowhere.jsonl", TaskColumns())
    pytest.importorskip("pyarrow")
    with pytest.raises(ConfigError, match=r"nowhere\.parquet"):
        Parquet(tmp_path / "nowhere.parquet", TaskColumns())
    (tmp_path / "odd.parquet").write_bytes(b"odd")
    with pytest.raises(ConfigError, match=r"odd\.parquet"):
        Parquet(tmp_path / "odd.parquet", TaskColumns())
