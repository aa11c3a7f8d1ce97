"""Folders as tarballs, for sandboxes whose files are not on this machine."""

import io
import os
import posixpath
import tarfile
from collections import Counter
from pathlib import Path
from typing import IO

from agar.errors import ToolError
from agar.sandbox.base import Transfer


def pack(source: Path, archive: IO[bytes], *, links: bool = False) -> Transfer:
    """Write a folder as a tarball, without its special files.

    Args:
        source: the folder.
        archive: where to write.
        links: whether links are kept, and modes, as they are.
    """
    total, skipped = Counter[str](), Counter[str]()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for folder, folders, names in os.walk(source):
            here = Path(folder)
            for name in (*sorted(folders), *sorted(names)):
                item = here / name
                member = tarfile.TarInfo(str(item.relative_to(source)))
                if item.is_symlink():
                    if links:
                        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(item)
                        tar.addfile(member)
                    else:
                        skipped["symlink"] += 1
                elif item.is_dir():
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
                elif item.is_file():
                    data = item.read_bytes()
                    member.size, member.mode = len(data), item.stat().st_mode & 0o777 if links else 0o644
                    tar.addfile(member, io.BytesIO(data))
                    total.update(files=1, bytes=len(data))
                else:
                    skipped["special"] += 1
    return Transfer(files=total["files"], size_bytes=total["bytes"], skipped=dict(+skipped))


def unpack(archive: bytes, source: str, target: Path, limit_bytes: int, *, folder: bool = False) -> Transfer:
    """Write a tarball that hostile code may have shaped; only regular files, only below `target`.

    Args:
        archive: the tarball; one member called as the source itself is a single file.
        source: the path that was asked for, for messages.
        target: where to.
        limit_bytes: the most that is written.
        folder: whether it is known to be a folder's, however few members it has.

    Raises:
        ToolError: there is more, or it is no tarball.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            return _unpack(tar, source, target, limit_bytes, folder)
    except tarfile.TarError as error:
        raise ToolError(f"{source!r} did not come as a tarball: {error}") from error


def _unpack(tar: tarfile.TarFile, source: str, target: Path, limit_bytes: int, folder: bool) -> Transfer:
    total, skipped = Counter[str](), Counter[str]()
    members = tar.getmembers()
    single = (
        not folder and bool(members) and members[0].isreg() and members[0].name == posixpath.basename(members[0].name)
    )
    if not single:
        target.mkdir(parents=True, exist_ok=True)
    regular: dict[tuple[str, ...], tarfile.TarInfo] = {}  # what a hard link may lead to
    for member in members:
        parts = _parts(member.name)
        if ".." in parts:
            skipped["outside"] += 1
            continue
        place = target if single else target.joinpath(*parts)
        if member.isdir():
            place.mkdir(parents=True, exist_ok=True)
        elif member.isreg() or member.islnk():  # a hard link's content is that of a member before it
            content = member if member.isreg() else regular.get(_parts(member.linkname))
            if content is None:
                skipped["outside"] += 1
                continue
            regular[parts] = content
            file = tar.extractfile(content)
            data = file.read(limit_bytes + 1) if file else b""
            if total["bytes"] + len(data) > limit_bytes:
                raise ToolError(f"{source!r} holds more than {limit_bytes} bytes: ask for less of it")
            place.write_bytes(data)
            total.update(files=1, bytes=len(data))
        else:
            skipped["symlink" if member.issym() else "special"] += 1
    return Transfer(files=total["files"], size_bytes=total["bytes"], skipped=dict(skipped))


def _parts(name: str) -> tuple[str, ...]:
    """The steps of a member's path below the folder that it is unpacked into."""
    return tuple(part for part in name.split("/") if part not in ("", "."))
