"""Tarballs that come out of a sandbox, whatever hostile code made of them."""

import io
import os
import tarfile

import pytest

from agar.errors import ToolError
from agar.sandbox.trees import pack, unpack


def archive_of(*members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.linkname = content
                tar.addfile(member)
    return buffer.getvalue()


def test_only_regular_files_come_out_and_only_below_the_target(tmp_path):
    hostile = archive_of(
        ("./", tarfile.DIRTYPE, ""),
        ("./good", tarfile.REGTYPE, b"good"),
        ("./link", tarfile.SYMTYPE, "/etc/passwd"),
        ("./fifo", tarfile.FIFOTYPE, ""),
        ("./../../up", tarfile.REGTYPE, b"x"),
        ("/absolute", tarfile.REGTYPE, b"stays below"),
        ("./hard", tarfile.LNKTYPE, "./good"),
    )
    got = unpack(hostile, "tree", tmp_path / "out", 1000)
    assert dict(got.skipped) == {"symlink": 1, "special": 1, "outside": 1}
    assert sorted(os.listdir(tmp_path / "out")) == ["absolute", "good", "hard"]
    assert (tmp_path / "out" / "hard").read_bytes() == b"good"
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_a_file_behind_a_link_of_the_same_archive_does_not_leave_the_target(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    hostile = archive_of(
        ("./", tarfile.DIRTYPE, ""),
        ("./d", tarfile.SYMTYPE, str(tmp_path / "elsewhere")),
        ("./d/f", tarfile.REGTYPE, b"x"),
    )
    with pytest.raises((OSError, ToolError)):
        unpack(hostile, "tree", tmp_path / "out", 1000)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_hard_link_leads_to_a_file_that_came_before_it_and_nowhere_else(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    hostile = archive_of(
        ("./", tarfile.DIRTYPE, ""),
        ("./good", tarfile.REGTYPE, b"good"),
        ("./planted", tarfile.SYMTYPE, str(secret)),
        ("./one", tarfile.SYMTYPE, "two"),
        ("./two", tarfile.SYMTYPE, "one"),
        ("./out", tarfile.LNKTYPE, str(secret)),
        ("./up", tarfile.LNKTYPE, "../secret"),
        ("./through", tarfile.LNKTYPE, "./planted"),
        ("./round", tarfile.LNKTYPE, "./one"),
        ("./self", tarfile.LNKTYPE, "./self"),
        ("./later", tarfile.LNKTYPE, "./last"),
        ("./hard", tarfile.LNKTYPE, "good"),
        ("./harder", tarfile.LNKTYPE, "./hard"),
        ("./last", tarfile.REGTYPE, b"last"),
    )
    got = unpack(hostile, "tree", tmp_path / "out", 1000)
    assert dict(got.skipped) == {"symlink": 3, "outside": 6}
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "good": b"good",
        "hard": b"good",
        "harder": b"good",
        "last": b"last",
    }


def test_more_than_the_disk_is_refused(tmp_path):
    with pytest.raises(ToolError, match="more than 3 bytes"):
        unpack(archive_of(("./", tarfile.DIRTYPE, ""), ("./f", tarfile.REGTYPE, b"four")), "t", tmp_path / "out", 3)


def test_links_and_special_files_are_left_out_on_the_way_in(tmp_path):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "f").write_bytes(b"12")
    (source / "l").symlink_to("/etc/passwd")
    (source / "ld").symlink_to(source / "sub")
    os.mkfifo(source / "p")
    archive = io.BytesIO()
    sent = pack(source, archive)
    assert (sent.files, sent.size_bytes, dict(sent.skipped)) == (1, 2, {"symlink": 2, "special": 1})
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        assert tar.getnames() == ["sub", "sub/f"]
