"""The files of a sandbox at one moment, and how to lay them out again.

A snapshot is a tarball with the trees `work` and `tmp`, the same for every backend, so that what was taken from one can
be restored into another. Folders, regular files and links are kept, with their modes and times; a file with several
names becomes several files; sockets, FIFOs and devices are left out.
"""

import asyncio
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from agar.errors import SandboxError, ToolError
from agar.sandbox.base import Sandbox, Snapshot

TREES = ("work", "tmp")
_AT_ONE_TIME = 4  # restored in parallel by `fork`
S = TypeVar("S", bound=Sandbox)


def take(directory: int, limit_bytes: int) -> Snapshot:
    """Read the trees below an open directory, which hostile code may be changing.

    Args:
        directory: descriptor of the directory that holds `work` and `tmp`.
        limit_bytes: the most that is read.

    Raises:
        ToolError: there is more.
    """
    buffer, sizes = io.BytesIO(), _Budget(limit_bytes)
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in TREES:
            _take(directory, name, name, tar, sizes)
    return Snapshot(archive=buffer.getvalue(), files=sizes.files, size_bytes=sizes.used)


class _Budget:
    def __init__(self, limit_bytes: int) -> None:
        self.left, self.used, self.files = limit_bytes, 0, 0

    def spend(self, size: int) -> None:
        self.left, self.used, self.files = self.left - size, self.used + size, self.files + 1
        if self.left < 0:  # holes in sparse files take no disk inside
            raise ToolError(f"the sandbox holds more than {self.used + self.left} bytes: delete some of it")


def _take(parent: int, name: str, path: str, tar: tarfile.TarFile, budget: _Budget) -> None:
    try:
        status = os.lstat(name, dir_fd=parent)
        member = tarfile.TarInfo(path)
        member.mode, member.mtime = stat.S_IMODE(status.st_mode) & 0o777, int(status.st_mtime)
        if stat.S_ISLNK(status.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=parent)
            tar.addfile(member)
            return
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            return
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError:  # it vanished, changed its kind, or is closed to us
        return
    try:
        if stat.S_ISDIR(status.st_mode):
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
            for child in sorted(os.listdir(fd)):
                _take(fd, child, f"{path}/{child}", tar, budget)
        else:
            with open(fd, "rb", closefd=False) as file:
                data = file.read(budget.left + 1)
            budget.spend(len(data))
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    finally:
        os.close(fd)


def lay_out(directory: int, snapshot: Snapshot, *, uid: int, gid: int) -> None:
    """Replace the trees below an open directory by those of a snapshot. No link is followed, whoever planted it.

    Args:
        directory: descriptor of the directory that holds `work` and `tmp`.
        snapshot: what to lay out.
        uid: who is to own it.
        gid: its group.

    Raises:
        ToolError: the disk is full, or the archive is none of ours.
    """
    try:
        for name in TREES:
            tree = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            try:
                for child in os.listdir(tree):
                    _remove(tree, child)
            finally:
                os.close(tree)
        with tarfile.open(fileobj=io.BytesIO(snapshot.archive), mode="r:") as tar:
            closed = [member for member in tar if _lay_out(directory, tar, member, uid, gid)]
        for member in reversed(closed):  # a folder gets its mode last: it may be closed to its owner
            _finish(directory, member)
    except (OSError, tarfile.TarError) as error:
        raise ToolError(f"the snapshot cannot be laid out: {error}: is the sandbox's disk large enough?") from error


def _remove(parent: int, name: str) -> None:
    if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
        shutil.rmtree(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


def _lay_out(directory: int, tar: tarfile.TarFile, member: tarfile.TarInfo, uid: int, gid: int) -> bool:
    """Lay out one member; True for a folder."""
    *above, name = _parts(member.name)
    parent = _descend(directory, above)
    try:
        if member.isdir():
            if above:
                os.mkdir(name, 0o700, dir_fd=parent)
        elif member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.isreg() or member.islnk():
            file = tar.extractfile(member)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name, flags, member.mode & 0o777, dir_fd=parent)
            with open(fd, "wb") as target:
                shutil.copyfileobj(file, target) if file else None
                os.fchmod(fd, member.mode & 0o777)
        else:
            return False
        if os.getuid() != uid:
            os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)
        os.utime(name, (member.mtime, member.mtime), dir_fd=parent, follow_symlinks=False)
        return member.isdir() and bool(above)
    finally:
        os.close(parent)


def _finish(directory: int, member: tarfile.TarInfo) -> None:
    fd = _descend(directory, _parts(member.name))
    try:
        os.fchmod(fd, member.mode & 0o777)
        os.utime(fd, (member.mtime, member.mtime))
    finally:
        os.close(fd)


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts or parts[0] not in TREES or ".." in parts:
        raise ToolError(f"the snapshot holds {name!r}, which lies outside a sandbox: take it with `snapshot`")
    return parts


def _descend(directory: int, parts: Sequence[str]) -> int:
    """A descriptor of a folder, reached without following a link."""
    fd = os.dup(directory)
    for part in parts:
        try:
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        fd = deeper
    return fd


def of_files(files: Mapping[str, bytes]) -> Snapshot:
    """A snapshot that holds files.

    Args:
        files: absolute path, below `/work` or `/tmp`, to content.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        folders = {str(folder)[1:] for path in files for folder in PurePosixPath(path).parents if len(folder.parts) > 2}
        for folder in sorted(folders):
            member = tarfile.TarInfo(folder)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for path, data in sorted(files.items()):
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    return Snapshot(archive=buffer.getvalue(), files=len(files), size_bytes=sum(map(len, files.values())))


def files_of(snapshot: Snapshot) -> dict[str, bytes]:
    """The regular files of a snapshot, by absolute path.

    Raises:
        ToolError: the archive is none of ours.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(snapshot.archive), mode="r:") as tar:
            found = {f"/{member.name}": tar.extractfile(member) for member in tar if member.isreg() or member.islnk()}
            return {path: file.read() for path, file in found.items() if file is not None}
    except tarfile.TarError as error:
        raise ToolError(f"the snapshot cannot be read: {error}: take it with `snapshot`") from error


async def forked(parent: Sandbox, copies: Sequence[S]) -> list[S]:
    """Restore a sandbox's files into fresh ones; closes them all if one fails.

    Args:
        parent: whose files.
        copies: sandboxes that have not been used.
    """
    turn = asyncio.Semaphore(_AT_ONE_TIME)

    async def fill(copy: S, snapshot: Snapshot) -> None:
        async with turn:
            await copy.restore(snapshot)

    try:
        snapshot = await parent.snapshot()
        async with asyncio.TaskGroup() as group:
            for copy in copies:
                group.create_task(fill(copy, snapshot))
    except BaseException as error:
        for copy in copies:
            await copy.close()
        if isinstance(error, ExceptionGroup):
            raise SandboxError(f"a sandbox could not be forked: {error.exceptions[0]}") from error
        raise
    return list(copies)
