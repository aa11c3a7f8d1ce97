"""Files of a container, moved as tar streams through commands that run in it.

The engine's own copying cannot see a tmpfs. Nothing else runs in the container meanwhile, so what the code has planted
stays as it is, and a path that leaves the workspace by a link ends in the container's read-only root.
"""

import io
import tarfile

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
