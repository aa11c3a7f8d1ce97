"""What an agent leaves behind: files, carried from its sandbox to the one in which they are judged."""

import asyncio
import base64
import binascii
import difflib
import functools
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from agar.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from agar.sandbox.base import Transfer

_DIFF_BYTES = 32 << 10  # difflib needs quadratic time, and a file is whatever an agent made of it
_KEY = "artifacts"


class Source(Protocol):
    """Where files can be taken from: a sandbox, an episode's sandbox, a harness's place."""

    async def get(self, source: str, target: Path) -> "Transfer":
        """Copy a folder out; links and special files are skipped and counted."""
        ...


class Target(Protocol):
    """Where files can be laid out: a sandbox, an episode's sandbox, a harness's place."""

    async def write(self, path: str, data: bytes | str) -> None:
        """Create or replace a file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """The files of an agent that count.

    Attributes:
        files: their content by relative path.
        patterns: which files the agent may bring: those that one pattern names and none that begins with `!` does.
            `*` and `?` stop at a `/`, `**/` stands for any number of folders.
        skipped: what was left out, by reason (`symlink`, `special`, `not asked for`) and count.
    """

    files: Mapping[str, bytes]
    patterns: tuple[str, ...] = ("**/*",)
    skipped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    async def collect(
        cls, source: Source, patterns: Sequence[str], *, folder: str = ".", limit_bytes: int = 16 << 20
    ) -> Self:
        """Take the files that match out of a folder. Links and special files are never followed and never taken.

        Args:
            source: where they are.
            patterns: which ones.
            folder: the folder inside; paths are relative to it.
            limit_bytes: the most that they may hold together.

        Raises:
            ToolError: the folder is gone, or they hold more.
            SandboxError: the source failed.
        """
        with tempfile.TemporaryDirectory(prefix="agar-artifacts-") as place:
            transfer = await source.get(folder, Path(place))
            found, size = await asyncio.to_thread(_read, Path(place), tuple(patterns), limit_bytes)
        if size > limit_bytes:
            raise ToolError(f"the files to be graded hold more than {limit_bytes} bytes: leave less behind")
        unasked = transfer.files - len(found)
        skipped = {**transfer.skipped, **({"not asked for": unasked} if unasked else {})}
        return cls(files=found, patterns=tuple(patterns), skipped=skipped)

    def over(self, original: Mapping[str, bytes]) -> dict[str, bytes]:
        """The original files, with the agent's in the place of all that the patterns name.

        What the agent deleted is not there; what it may not bring is as it was, whatever it did.
        """
        kept = {path: data for path, data in original.items() if not matches(path, self.patterns)}
        return {**kept, **{path: data for path, data in self.files.items() if matches(path, self.patterns)}}

    def changes(self, original: Mapping[str, bytes]) -> tuple[str, ...]:
        """The paths that differ from the original: changed, new and deleted ones, sorted."""
        after = self.over(original)
        return tuple(sorted(path for path in {*original, *after} if original.get(path) != after.get(path)))

    def diff(self, original: Mapping[str, bytes]) -> str:
        """The changes as a unified diff, to be read by people; what is large or no text is only named."""
        after = self.over(original)
        parts: list[str] = []
        for path in self.changes(original):
            pair = [_lines(side.get(path, b"")) for side in (original, after)]
            if None in pair:
                parts.append(f"{path} differs ({len(after.get(path, b''))} bytes)\n")
                continue
            old, new = (
                f"{mark}/{path}" if path in side else "/dev/null" for mark, side in (("a", original), ("b", after))
            )
            parts += difflib.unified_diff(pair[0] or [], pair[1] or [], old, new)
        return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts)

    async def lay_out(self, target: Target, *, original: Mapping[str, bytes], folder: str = ".") -> None:
        """Write the original with the agent's files over it.

        Raises:
            ToolError: a path is impossible there, or there is no room.
            SandboxError: the target failed.
        """
        for path, data in self.over(original).items():
            await target.write(f"{folder}/{path}", data)

    def to_text(self) -> str:
        """The files as a text, for an agent whose whole answer they are."""
        return json.dumps({_KEY: {path: base64.b64encode(data).decode() for path, data in self.files.items()}})

    @classmethod
    def from_text(cls, text: str, patterns: Sequence[str]) -> "Artifacts | None":
        """What `to_text` gave, or None where a text is anything else."""
        if not text.startswith(f'{{"{_KEY}":'):
            return None
        try:
            held = json.loads(text)[_KEY]
            found = {str(path): base64.b64decode(data, validate=True) for path, data in held.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
            return None
        kept = {path: data for path, data in found.items() if _plain(path) and matches(path, patterns)}
        unasked = len(found) - len(kept)
        return cls(files=kept, patterns=tuple(patterns), skipped={"not asked for": unasked} if unasked else {})


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns names a path, and none that begins with `!` does."""
    named = [pattern for pattern in patterns if _expression(pattern.removeprefix("!")).fullmatch(path)]
    return bool(named) and not any(pattern.startswith("!") for pattern in named)


@functools.cache
def _expression(pattern: str) -> re.Pattern[str]:
    if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
        raise ConfigError(f"{pattern!r} must be a relative pattern without '..', such as 'src/**/*.py'")
    words = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(words.get(word) or re.escape(word) for word in re.findall(r"\*\*/|\*\*|.", pattern, re.DOTALL)),
        re.DOTALL,
    )


def _plain(path: str) -> bool:
    return bool(path) and "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _read(place: Path, patterns: tuple[str, ...], limit_bytes: int) -> tuple[dict[str, bytes], int]:
    """The files that match, and the bytes that they hold; they are not read where that is more than the limit."""
    everything = {path.relative_to(place).as_posix(): path for path in sorted(place.rglob("*")) if path.is_file()}
    wanted = {name: path for name, path in everything.items() if matches(name, patterns)}
    size = sum(path.stat().st_size for path in wanted.values())
    return {name: path.read_bytes() for name, path in wanted.items()} if size <= limit_bytes else {}, size


def _lines(data: bytes) -> list[str] | None:
    try:
        return data.decode().splitlines(keepends=True) if len(data) <= _DIFF_BYTES else None
    except UnicodeDecodeError:
        return None
