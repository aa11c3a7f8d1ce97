"""Files of a sandbox that can only be reached by running commands in it: small scripts, and tar streams through them.

Nothing else runs in the sandbox meanwhile, so what the code has planted stays as it is, and a path that leaves the
workspace by a link ends in the sandbox's own read-only root.
"""

import asyncio
import io
import tarfile
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from agar.errors import SandboxError, ToolError
from agar.sandbox import trees
from agar.sandbox.base import KilledBy, Snapshot, Transfer
from agar.sandbox.files import inside

# $1 is the path. Each says why it will not, and ends with 3: the agent's mistake.
READ = """
real=$(readlink -f -- "$1") || { echo 'No such file or directory' >&2; exit 3; }
case "$real" in /work/*|/tmp/*) ;; *) echo 'No such file or directory inside the sandbox' >&2; exit 3;; esac
[ -e "$real" ] || { echo 'No such file or directory' >&2; exit 3; }
[ -d "$real" ] && { echo 'is a directory: name a regular file' >&2; exit 3; }
[ -f "$real" ] || { echo 'is not a regular file: name a regular file' >&2; exit 3; }
exec cat -- "$real"
"""
WRITE = """
mkdir -p -- "$(dirname -- "$1")" || exit 3
real=$(readlink -f -- "$1") || { echo 'No such file or directory' >&2; exit 3; }
case "$real" in /work/*|/tmp/*) ;; *) echo 'No such file or directory inside the sandbox' >&2; exit 3;; esac
[ -e "$real" ] && [ ! -f "$real" ] && { echo 'is not a regular file: name a regular file' >&2; exit 3; }
exec cat > "$real" || exit 3
"""
PUT = 'mkdir -p -- "$1" && cd -- "$1" || exit 3; real=$(pwd -P); '
PUT += """case "$real/" in /work/*|/tmp/*) ;; *) echo 'lies outside the sandbox' >&2; exit 3;; esac
exec tar -xf - --no-same-owner
"""
GET = """
real=$(readlink -f -- "$1") || { echo 'No such file or directory' >&2; exit 3; }
case "$real/" in /work/*|/tmp/*) ;; *) echo 'No such file or directory inside the sandbox' >&2; exit 3;; esac
[ -e "$real" ] || { echo 'No such file or directory' >&2; exit 3; }
if [ -d "$real" ]; then cd -- "$real" && exec tar -cf - . 2>/dev/null; fi
[ -f "$real" ] || { echo 'is not a regular file: name a regular file' >&2; exit 3; }
cd -- "$(dirname -- "$real")" && exec tar -cf - -- "$(basename -- "$real")"
"""
SNAPSHOT = "cd / && tar -cf - work tmp 2>/dev/null; exit 0"  # what is closed to its owner is left out
RESTORE = "find /work /tmp -mindepth 1 -delete; cd / && exec tar -xpf - --no-same-owner"

# Kills what a command has left as soon as it ends, and is only a convenience where something outside kills again. The
# shell's own words about a signal go nowhere. $1 is the working directory.
WRAP = 'cd -- "$1" || exit 126; shift; exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; code=$?; kill -9 -1; exit "$code"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one process in a sandbox did.

    Attributes:
        code: its exit status.
        out: what it wrote to its output, cut.
        err: what it wrote to its errors, cut.
        truncated: whether either was cut.
        killed_by: None where it ended by itself.
        wall_s: seconds from its start until its last process was gone.
    """

    code: int
    out: bytes
    err: bytes
    truncated: bool
    killed_by: KilledBy | None
    wall_s: float


class ScriptedFiles:
    """The file methods of a `Sandbox`, over something that runs a script in it."""

    def __init__(self, run: Callable[[str, str, bytes], Awaitable[Ran]], *, disk_mib: int) -> None:
        """Nothing runs yet.

        Args:
            run: runs a script with a path and an input, and keeps all of its output up to the disk's size and a bit.
            disk_mib: the sandbox's disk.
        """
        self._run = run
        self._disk_mib = disk_mib

    async def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        return (await self.script(READ, inside(path), path)).out

    async def write(self, path: str, data: bytes | str) -> None:
        """See `Sandbox.write`."""
        await self.script(WRITE, inside(path), path, data.encode() if isinstance(data, str) else data)

    async def put(self, source: Path, target: str) -> Transfer:
        """See `Sandbox.put`."""
        place = inside(target)
        if not await asyncio.to_thread(source.is_dir):
            data = await asyncio.to_thread(source.read_bytes)
            await self.write(target, data)
            return Transfer(files=1, size_bytes=len(data))
        with tempfile.TemporaryFile() as archive:
            sent = await asyncio.to_thread(trees.pack, source, archive)
            archive.seek(0)
            await self.script(PUT, place, target, archive.read())
        return sent

    async def get(self, source: str, target: Path) -> Transfer:
        """See `Sandbox.get`."""
        archive = (await self.script(GET, inside(source), source)).out
        return await asyncio.to_thread(trees.unpack, archive, source, target, self._disk_mib << 20)

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        archive = (await self.script(SNAPSHOT, "/", "/")).out
        kept, files, size_bytes = await asyncio.to_thread(plain, archive)
        return Snapshot(archive=kept, files=files, size_bytes=size_bytes)

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self.script(RESTORE, "/", "/", snapshot.archive)

    async def fill(self, workspace: Path) -> None:
        """Copy a folder to `/work` as it is, with links and modes.

        Raises:
            SandboxError: it does not fit.
        """
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(trees.pack, workspace, archive, links=True)
            archive.seek(0)
            ran = await self._run(PUT, "/work", archive.read())
        if ran.code != 0:
            complaint = ran.err.decode("utf-8", "replace")[-200:]
            raise SandboxError(f"workspace: {workspace} does not fit into disk_mib = {self._disk_mib}: {complaint}")

    async def script(self, script: str, place: str, path: str, stdin: bytes = b"") -> Ran:
        """Run one of our own scripts.

        Raises:
            ToolError: it says that what the agent asked for cannot be done.
        """
        ran = await self._run(script, place, stdin)
        if ran.killed_by == "output":
            raise ToolError(f"{path!r} holds more than {self._disk_mib} MiB: read a part of it with a command")
        if ran.killed_by or ran.code:
            complaint = ran.err.decode("utf-8", "replace").strip().rpartition(": ")[2] or f"exit status {ran.code}"
            raise ToolError(f"{path!r}: {complaint}: name another path, or free some space")
        return ran


def plain(archive: bytes) -> tuple[bytes, int, int]:
    """A tarball without sockets, FIFOs and devices; how many regular files it holds, and their size in bytes."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        members = tar.getmembers()
        kept = [member for member in members if member.isdir() or member.issym() or member.isreg() or member.islnk()]
        sizes = [member.size for member in kept if member.isreg() or member.islnk()]
        if len(kept) < len(members):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as copy:
                for member in kept:
                    copy.addfile(member, tar.extractfile(member) if member.isreg() else None)
            archive = buffer.getvalue()
    return archive, len(sizes), sum(sizes)
