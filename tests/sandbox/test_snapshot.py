"""Snapshots outside of any sandbox: what is kept, and what a forged one cannot do."""

import io
import os
import tarfile

import pytest

from agar.errors import ToolError
from agar.sandbox.base import Snapshot
from agar.sandbox.snapshot import files_of, lay_out, of_files, take


@pytest.fixture
def tree(tmp_path):
    """A directory like a workspace, and its descriptor."""
    for name in ("work", "tmp"):
        (tmp_path / "root" / name).mkdir(parents=True)
    fd = os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY)
    yield tmp_path / "root", fd
    os.close(fd)


def forged(*members) -> Snapshot:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            tar.addfile(member, io.BytesIO(b""))
    return Snapshot(archive=buffer.getvalue(), files=0, size_bytes=0)


def restore(fd, snapshot):
    lay_out(fd, snapshot, uid=os.getuid(), gid=os.getgid())


def test_what_is_taken_is_laid_out_again(tree):
    root, fd = tree
    (root / "work" / "d" / "e").mkdir(parents=True)
    (root / "work" / "d" / "f").write_bytes(b"\0\xff")
    (root / "work" / "d" / "f").chmod(0o751)
    (root / "work" / "l").symlink_to("/etc/passwd")
    os.mkfifo(root / "work" / "p")
    (root / "tmp" / os.fsdecode(b"\xff")).write_bytes(b"x")
    os.utime(root / "work" / "d" / "f", (10, 10))
    (root / "work" / "d").chmod(0o555)
    snapshot = take(fd, 1000)
    assert (snapshot.files, snapshot.size_bytes) == (2, 3)
    (root / "work" / "d").chmod(0o755)
    (root / "work" / "d" / "f").write_bytes(b"changed")
    (root / "work" / "new").mkdir()
    (root / "work" / "new" / "x").write_bytes(b"x")
    restore(fd, snapshot)
    assert sorted(os.listdir(root / "work")) == ["d", "l"]
    assert (root / "work" / "d" / "f").read_bytes() == b"\0\xff"
    assert (root / "work" / "d" / "f").stat().st_mode & 0o777 == 0o751
    assert (root / "work" / "d" / "f").stat().st_mtime == 10
    assert (root / "work" / "d").stat().st_mode & 0o777 == 0o555
    assert os.readlink(root / "work" / "l") == "/etc/passwd"
    assert os.listdir(os.fsencode(root / "tmp")) == [b"\xff"]
    (root / "work" / "d").chmod(0o755)


def test_files_by_name_make_a_snapshot_and_come_back(tree):
    root, fd = tree
    files = {"/work/a/b/c": b"1", "/tmp/t": b"2", "/work/empty": b""}
    snapshot = of_files(files)
    assert files_of(snapshot) == files
    restore(fd, snapshot)
    assert (root / "work" / "a" / "b" / "c").read_bytes() == b"1"
    assert files_of(take(fd, 100)) == files


def test_more_than_the_disk_is_not_taken(tree):
    root, fd = tree
    with (root / "work" / "sparse").open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(ToolError, match="more than 1000 bytes"):
        take(fd, 1000)


@pytest.mark.parametrize(
    "members",
    [
        [("work/../../up", tarfile.REGTYPE, "")],
        [("/etc/x", tarfile.REGTYPE, "")],
        [("up", tarfile.REGTYPE, "")],
        [("work/l", tarfile.SYMTYPE, "OUTSIDE"), ("work/l/x", tarfile.REGTYPE, "")],
        [("work/l", tarfile.SYMTYPE, "OUTSIDE/x"), ("work/l", tarfile.REGTYPE, "")],
        [("work", tarfile.SYMTYPE, "OUTSIDE")],
    ],
    ids=["dots", "absolute", "no tree", "through a link", "over a link", "the tree itself"],
)
def test_a_forged_snapshot_writes_nothing_outside(tree, tmp_path, members):
    _, fd = tree
    outside = tmp_path / "outside"
    outside.mkdir()
    named = [(name, kind, target.replace("OUTSIDE", str(outside))) for name, kind, target in members]
    with pytest.raises(ToolError):
        restore(fd, forged(*named))
    assert os.listdir(outside) == []
    assert sorted(os.listdir(tmp_path)) == ["outside", "root"]


def test_devices_and_compressed_archives_are_not_accepted(tree):
    root, fd = tree
    restore(fd, forged(("work/null", tarfile.CHRTYPE, ""), ("work/pipe", tarfile.FIFOTYPE, "")))
    assert os.listdir(root / "work") == []
    import gzip

    with pytest.raises(ToolError, match="cannot be laid out"):
        restore(fd, Snapshot(archive=gzip.compress(of_files({}).archive), files=0, size_bytes=0))
