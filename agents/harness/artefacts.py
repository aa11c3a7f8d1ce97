"""What is kept of a program's folder after it has ended."""

import asyncio
import re
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agar.agents.harness.place import Place
from agar.errors import ToolError


async def keep_artefacts(place: Place, patterns: Sequence[str], folder: Path, *, name: str) -> dict[str, Any]:
    """Copy the files that match out of a program's folder.

    What the program has made of links and special files is not followed and not copied.

    Args:
        place: where it ran; it has ended.
        patterns: relative glob patterns.
        folder: the copies go into a new folder below it.
        name: what that folder's name begins with.

    Returns:
        `folder`, `files` (relative paths), `skipped` (left out, by reason and count); or `error`, where the program
        left more than is copied, or the folder cannot be written.
    """
    target = folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:100]}-{secrets.token_hex(4)}"
    try:
        with await asyncio.to_thread(_beside, folder) as everything:
            transfer = await place.get(".", Path(everything))
            files = await asyncio.to_thread(_move, Path(everything), patterns, target)
    except (ToolError, OSError) as error:  # the episode has been judged: no disk that is full may take that back
        return {"error": str(error)}
    return {"folder": str(target), "files": files, "skipped": dict(transfer.skipped)}


def _beside(folder: Path) -> tempfile.TemporaryDirectory[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=".agar-", dir=folder)  # on the same disk, so that files can be moved


def _move(source: Path, patterns: Sequence[str], target: Path) -> list[str]:
    found = sorted({path for pattern in patterns for path in source.glob(pattern) if path.is_file()})
    target.mkdir()
    for path in found:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.rename(place)
    return [str(path.relative_to(source)) for path in found]
