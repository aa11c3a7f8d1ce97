"""Whatever is asked, the database neither changes nor hurts anyone."""

import resource
from contextlib import nullcontext

import pytest

from agar.envs.library.guarded_sqlite import GuardedDatabase, shown
from agar.errors import ToolError

HOSTILE = {
    "write": "INSERT INTO items VALUES (9, 'x')",
    "delete": "DELETE FROM items",
    "drop": "DROP TABLE items",
    "update by a common table": "WITH a AS (SELECT 1) UPDATE items SET name = 'x'",
    "new table": "CREATE TABLE t AS SELECT 1",
    "temporary trigger": "CREATE TEMP TRIGGER t AFTER INSERT ON items BEGIN SELECT 1; END",
    "attach": "ATTACH '/etc/passwd' AS p",
    "vacuum into": "VACUUM INTO '/tmp/agar-should-not-be'",
    "pragma": "PRAGMA query_only = OFF",
    "pragma function": "SELECT * FROM pragma_database_list",
    "load a library": "SELECT load_extension('libc.so.6')",
    "read a file": "SELECT readfile('/etc/passwd')",
    "chance": "SELECT random()",
    "clock": "SELECT date('now')",
    "clock by a word": "SELECT CURRENT_TIMESTAMP",
    "two statements": "SELECT 1; DROP TABLE items",
    "endless": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c",
    "endless rows": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c ORDER BY n DESC",
    "product": "SELECT count(*) FROM " + ", ".join(f"items AS i{n}" for n in range(12)),
    "sorted product": (
        "SELECT group_concat(a.name || b.name) FROM items a, items b, items c, items d, items e, items f GROUP BY a.id "
        "ORDER BY 1"
    ),
    "large blob": "SELECT zeroblob(1000000000)",
    "large text": "SELECT printf('%1000000000d', 1)",
    "doubling": "WITH RECURSIVE c(t) AS (SELECT 'x' UNION ALL SELECT t || t FROM c) SELECT length(max(t)) FROM c",
    "replace": "SELECT length(replace(replace('aaaaaaaaaa', 'a', '" + "b" * 200 + "'), 'b', '" + "c" * 400 + "'))",
    "pattern": "SELECT 'a' LIKE '" + "%a" * 60 + "'",
    "depth": "SELECT " + "(" * 200 + "1" + ")" * 200,
    "many terms": " UNION ALL ".join(["SELECT 1"] * 60),
    "long": "SELECT '" + "x" * 100_000 + "'",
    "nul": "SELECT 1\0",
    "surrogate": "SELECT '\ud800'",
    "nothing": "",
}


@pytest.fixture
def database():
    made = GuardedDatabase({"items": ("id INTEGER, name TEXT", [(index, f"item {index}") for index in range(40)])})
    yield made
    made.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_query_is_refused_or_answered_small(database, name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ToolError, match=r".") if name != "nothing" else nullcontext():
        database.ask(HOSTILE[name])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024, "KiB"
    assert database.ask("SELECT count(*), max(name) FROM items") == [(40, "item 9")]


def test_what_is_asked_honestly_is_answered_whole(database):
    assert database.ask("SELECT upper(name) AS n FROM items WHERE id IN (3, 4) ORDER BY n DESC") == [
        ("ITEM 4",),
        ("ITEM 3",),
    ]
    recursive = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 100) SELECT sum(n) FROM c"
    assert database.ask(recursive) == [(5050,)]
    with pytest.raises(ToolError, match="no such column: nam"):
        database.ask("SELECT nam FROM items")


def test_rows_are_shown_and_too_many_are_cut(database):
    assert shown([(1, None), ("a", 2.5)]) == "1 | NULL\na | 2.5"
    assert shown([]) == "(no rows)"
    lines = shown(database.ask("SELECT id FROM items ORDER BY id")).splitlines()
    assert lines[:2] == ["0", "1"]
    assert (len(lines), lines[-1]) == (21, "(only the first 20 rows)")
