"""Task sets from files: JSON lines and parquet. Rows are read when they are asked for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.envs.tasks.columns import TaskColumns
from agar.errors import ConfigError, MissingExtraError, to_install
from agar.types import TaskRow


class JsonLines:
    """The lines of a `.jsonl` file, found again by where they start; memory holds 8 bytes a row.

    Raises:
        ConfigError: there is no such file, or it changed since it was opened, or a line is no JSON object.
    """

    def __init__(self, path: Path, columns: TaskColumns, *, split: str = "train", env: str = "") -> None:
        """Find the lines."""
        self._path, self._columns, self._split, self._env = path, columns, split, env
        try:
            with path.open("rb") as file:
                starts, position = [], 0
                for line in file:
                    if line.strip():
                        starts.append(position)
                    position += len(line)
        except OSError as error:
            raise ConfigError(f"cannot read the tasks in {path} ({error.strerror}): check the path") from error
        self._starts: npt.NDArray[np.int64] = np.array(starts, dtype=np.int64)
        self._size = position

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> TaskRow:
        place = range(len(self))[index]
        with self._path.open("rb") as file:
            if file.seek(0, 2) != self._size:
                raise ConfigError(f"{self._path} changed while its tasks were in use: start again, or copy it first")
            file.seek(int(self._starts[place]))
            line = file.readline()
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{self._path} row {place} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{self._path} row {place} must be a JSON object, got {type(row).__name__}")
        return self._columns.row(row, name=self._path.stem, index=place, split=self._split, env=self._env)


class Parquet:
    """The rows of a `.parquet` file, or of any other table of pyarrow's.

    Raises:
        ConfigError: there is no such file, or it is no parquet.
        MissingExtraError: pyarrow is not installed.
    """

    def __init__(self, path: Path, columns: TaskColumns, *, split: str = "train", env: str = "") -> None:
        """Map the file into memory."""
        self._path, self._columns, self._split, self._env = path, columns, split, env
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtraError(f"tasks in parquet files need pyarrow: {to_install('data')}") from error
        try:
            self._table: Any = pyarrow.parquet.read_table(path, memory_map=True)
        except (OSError, pyarrow.ArrowException) as error:
            raise ConfigError(f"cannot read the tasks in {path} ({error}): check the path") from error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> TaskRow:
        place = range(len(self))[index]
        row = self._table.slice(place, 1).to_pylist()[0]
        return self._columns.row(row, name=self._path.stem, index=place, split=self._split, env=self._env)
