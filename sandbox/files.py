"""Reading and writing a workspace from outside, whatever links hostile code has planted in it.

Every path is resolved by the kernel in one call, openat2 with RESOLVE_IN_ROOT, as if the sandbox's directory were `/`:
absolute links and `..` stay inside, and there is no moment between check and use. Opening never blocks, and only
regular files are read or written, so a planted FIFO does not hang the controller.
"""

import ctypes
import errno
import os
import posixpath
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from agar.errors import ToolError, UnsupportedPlatformError
from agar.sandbox.base import Transfer

_OPENAT2 = 437  # the same on every 64-bit machine
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_CHUNK_BYTES = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)
P = ParamSpec("P")
T = TypeVar("T")


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def inside(path: str) -> str:
    """The absolute form of a path in a sandbox.

    Args:
        path: relative to `/work`, or absolute below `/work` or `/tmp`.

    Raises:
        ToolError: it is empty, holds a NUL byte, or lies elsewhere.
    """
    if not path or "\0" in path:
        raise ToolError(f"{path!r} is not a path: give one relative to /work")
    absolute = posixpath.normpath(posixpath.join("/work", path))
    if absolute not in ("/work", "/tmp") and not absolute.startswith(("/work/", "/tmp/")):
        raise ToolError(f"{path!r} lies outside the sandbox: give a path below /work or /tmp")
    return absolute


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """An open workspace.

    Attributes:
        fd: directory that holds `work` and `tmp`.
        uid: who owns what is written, seen from outside.
        gid: its group.
        limit_bytes: the largest file that is read.
    """

    fd: int
    uid: int
    gid: int
    limit_bytes: int

    def borrow(self) -> "Workspace":
        """A copy with a descriptor of its own, for a thread: closing this one meanwhile cannot redirect it."""
        return replace(self, fd=os.dup(self.fd))

    def returning(self, call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Make a call with a borrowed workspace, then close its descriptor."""
        try:
            return call(*arguments, **options)
        finally:
            os.close(self.fd)

    def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        with self._file(path, os.O_RDONLY) as fd:
            return self._all(fd, path)

    def write(self, path: str, data: bytes) -> None:
        """See `Sandbox.write`."""
        target = inside(path)
        self._make_directories(posixpath.dirname(target), path)
        with self._file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd, _as_tool_error(path):
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]

    def put(self, source: Path, target: str) -> Transfer:
        """See `Sandbox.put`."""
        if not source.is_dir():
            data = source.read_bytes()
            self.write(target, data)
            return Transfer(files=1, size_bytes=len(data))
        count, size, skipped = 0, 0, Counter[str]()
        self._make_directories(inside(target), target)
        for folder, folders, names in os.walk(source):
            here = posixpath.join(target, *Path(folder).relative_to(source).parts)
            for name in sorted(folders):
                if (Path(folder) / name).is_symlink():
                    skipped["symlink"] += 1
                else:
                    self._make_directories(inside(posixpath.join(here, name)), target)
            for name in sorted(names):
                item = Path(folder) / name
                if item.is_symlink() or not item.is_file():
                    skipped["symlink" if item.is_symlink() else "special"] += 1
                    continue
                data = item.read_bytes()
                self.write(posixpath.join(here, name), data)
                count, size = count + 1, size + len(data)
        return Transfer(files=count, size_bytes=size, skipped=dict(skipped))

    def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        with _as_tool_error(source):
            fd = self._open(inside(source), os.O_RDONLY | os.O_NONBLOCK, 0)
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                data = self._all(fd, source)
                target.write_bytes(data)
                return Transfer(files=1, size_bytes=len(data))
            total, skipped = Counter[str](), Counter[str]()
            self._get_tree(fd, source, target, total, skipped)
            return Transfer(files=total["files"], size_bytes=total["bytes"], skipped=dict(skipped))
        finally:
            os.close(fd)

    def _get_tree(self, fd: int, source: str, target: Path, total: Counter[str], skipped: Counter[str]) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for name in sorted(os.listdir(fd)):
            path = posixpath.join(source, name)
            try:
                child = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
            except OSError as error:
                kinds = {errno.ELOOP: "symlink", errno.ENXIO: "special", errno.EACCES: "unreadable"}
                skipped[kinds.get(error.errno or 0, "vanished")] += 1
                continue
            try:
                mode = os.fstat(child).st_mode
                if stat.S_ISDIR(mode):
                    self._get_tree(child, path, target / name, total, skipped)
                elif stat.S_ISREG(mode):
                    data = self._all(child, path)
                    if total["bytes"] + len(data) > self.limit_bytes:  # holes in sparse files take no disk inside
                        raise ToolError(f"{source!r} holds more than {self.limit_bytes} bytes: ask for less of it")
                    (target / name).write_bytes(data)
                    total.update(files=1, bytes=len(data))
                else:
                    skipped["special"] += 1
            finally:
                os.close(child)

    def _all(self, fd: int, path: str) -> bytes:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise ToolError(f"{path!r} is {kind}: name a regular file")
        chunks, left = [], self.limit_bytes + 1
        while left and (chunk := os.read(fd, min(left, _CHUNK_BYTES))):
            chunks.append(chunk)
            left -= len(chunk)
        if not left:
            raise ToolError(f"{path!r} holds more than {self.limit_bytes} bytes: read a part of it with a command")
        return b"".join(chunks)

    @contextmanager
    def _file(self, path: str, flags: int) -> Iterator[int]:
        with _as_tool_error(path):
            fd = self._open(inside(path), flags | os.O_NONBLOCK, 0o644 if flags & os.O_CREAT else 0)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                raise ToolError(f"{path!r} is {kind}: name a regular file")
            if flags & os.O_CREAT and status.st_uid != self.uid:
                os.fchown(fd, self.uid, self.gid)
            yield fd
        finally:
            os.close(fd)

    def _make_directories(self, absolute: str, path: str) -> None:
        parts = absolute.strip("/").split("/")
        with _as_tool_error(path):
            for end in range(2, len(parts) + 1):
                self._make_directory("/".join(parts[: end - 1]), "/".join(parts[:end]), parts[end - 1])

    def _make_directory(self, parent: str, whole: str, name: str) -> None:
        try:
            os.close(self._open(whole, os.O_PATH | os.O_DIRECTORY, 0))
        except FileNotFoundError:
            above = self._open(parent, os.O_RDONLY | os.O_DIRECTORY, 0)
            try:
                os.mkdir(name, 0o755, dir_fd=above)
                made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
                try:
                    if os.fstat(made).st_uid != self.uid:
                        os.fchown(made, self.uid, self.gid)
                finally:
                    os.close(made)
            finally:
                os.close(above)

    def _open(self, path: str, flags: int, mode: int) -> int:
        how = _OpenHow(flags | os.O_CLOEXEC, mode, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        name = os.fsencode(path.lstrip("/"))
        for _ in range(100):  # EAGAIN: a rename raced with a `..`; hostile code can go on doing that for ever
            fd: int = _libc.syscall(_OPENAT2, self.fd, name, ctypes.byref(how), ctypes.sizeof(how))
            number = ctypes.get_errno()
            if fd >= 0:
                return fd
            if number != errno.EAGAIN:
                break
        if number == errno.ENOSYS:
            raise UnsupportedPlatformError("sandboxes need the openat2 system call: use Linux 5.6 or newer")
        raise OSError(number, os.strerror(number), path)


@contextmanager
def _as_tool_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ToolError(f"{path!r}: {reason}: name another path, or free some space") from error
    except UnicodeEncodeError as error:
        raise ToolError(f"{path!r} cannot be encoded as a file name: name another path") from error
