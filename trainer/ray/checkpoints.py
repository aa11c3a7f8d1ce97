"""Checkpoint directories: written beside their place, moved in when whole.

Layout: `hf/` (loads with transformers), `state/rank_00000.pt`, ... and `trainer.json`.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agar.errors import TrainerError

FORMAT = 1
"""Version of the layout."""


def beside(directory: Path) -> Path:
    """Where a checkpoint is written before it is whole: a hidden name on the same file system."""
    return directory.with_name(f".{directory.name}.{uuid.uuid4().hex[:8]}.partial")


def finish(partial: Path, directory: Path, record: Mapping[str, Any]) -> None:
    """Write the record and move the checkpoint to its place, where an older one may lie."""
    (partial / "trainer.json").write_text(json.dumps({"format": FORMAT, **record}, indent=1, sort_keys=True))
    replaced = directory.with_name(f".{directory.name}.{uuid.uuid4().hex[:8]}.replaced")
    with contextlib.suppress(FileNotFoundError):
        os.rename(directory, replaced)
    os.rename(partial, directory)
    shutil.rmtree(replaced, ignore_errors=True)


def read_record(directory: Path) -> dict[str, Any]:
    """The record of a checkpoint.

    Raises:
        TrainerError: there is none, or it is of another format.
    """
    path = directory / "trainer.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TrainerError(f"{path} cannot be read ({error}): pass a directory that save wrote") from error
    if record.get("format") != FORMAT:
        raise TrainerError(f"{path} has format {record.get('format')!r}, expected {FORMAT}: it needs another release")
    return record
