"""A small database that answers questions of people nobody trusts.

Only `SELECT` runs; a statement may use so many steps of SQLite's machine, no value or row may be longer than a
kilobyte, and no function may be called that reads the clock, the disk or chance. That bounds time and memory in this
process: half a million steps make at most some ten thousand rows of a kilobyte.
"""

import sqlite3
import threading
from collections.abc import Iterable, Mapping

from agar.errors import ToolError

MAX_STEPS = 500_000
"""Steps of SQLite's machine that a statement may use."""
MAX_ROWS = 20
"""Rows that are shown."""

_HANDLER_STEPS = 1_000
_AGGREGATES = {"avg", "count", "group_concat", "max", "min", "sum", "total"}
_NUMBERS = {"abs", "round", "sign"}
_TEXTS = {"instr", "length", "like", "lower", "replace", "substr", "substring", "trim", "upper"}
_FUNCTIONS = _AGGREGATES | _NUMBERS | _TEXTS | {"coalesce", "ifnull", "iif", "nullif"}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_LIMITS: Mapping[int, int] = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 64,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 10_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class GuardedDatabase:
    """A database in memory that is filled once and can then only be asked. Thread-safe."""

    def __init__(self, tables: Mapping[str, tuple[str, Iterable[tuple[object, ...]]]]) -> None:
        """Fill it; `tables` gives the columns (as SQL) and the rows of each table."""
        self._lock = threading.Lock()
        self._steps = 0
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, cached_statements=0)
        for name, (columns, rows) in tables.items():
            self._connection.execute(f"CREATE TABLE {name} ({columns})")
            marks = ", ".join("?" for _ in columns.split(","))
            self._connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        self._connection.commit()
        self._connection.execute("PRAGMA query_only = ON")
        for limit, value in _LIMITS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_progress_handler(self._too_long, _HANDLER_STEPS)
        self._connection.set_authorizer(_allowed)

    def ask(self, query: str) -> list[tuple[object, ...]]:
        """The first rows that a query gives, one more than are shown.

        Raises:
            ToolError: it is not one `SELECT`, is wrong, or takes too much.
        """
        with self._lock:
            self._steps = 0
            try:
                return self._connection.execute(query).fetchmany(MAX_ROWS + 1)
            except sqlite3.OperationalError as error:
                text = "too much work: ask for less" if str(error) == "interrupted" else str(error)
                raise ToolError(text) from error
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
                raise ToolError(str(error) or type(error).__name__) from error
            except MemoryError as error:
                raise ToolError("too much memory: ask for less") from error

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            self._connection.close()

    def _too_long(self) -> int:
        self._steps += _HANDLER_STEPS
        return int(self._steps > MAX_STEPS)


def shown(rows: list[tuple[object, ...]]) -> str:
    """Rows as text, a line each."""
    lines = [" | ".join("NULL" if value is None else str(value) for value in row) for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        lines.append(f"(only the first {MAX_ROWS} rows)")
    return "\n".join(lines) or "(no rows)"


def _allowed(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    if action in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
