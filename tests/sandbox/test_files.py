"""Workspaces as plain directories: what is resolved where, and what is refused."""

import os
import posixpath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agar.errors import ToolError
from agar.sandbox.files import Workspace, inside


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    for name in ("work", "tmp"):
        (root / name).mkdir(parents=True)
    return root


@pytest.fixture
def workspace(root):
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    yield Workspace(fd=fd, uid=os.getuid(), gid=os.getgid(), limit_bytes=1000)
    os.close(fd)


@given(st.text(alphabet="ab./~\\ ", max_size=30))
def test_a_path_is_inside_or_refused(path):
    try:
        absolute = inside(path)
    except ToolError:
        return
    assert absolute.split("/")[1] in ("work", "tmp")
    assert ".." not in absolute.split("/")
    assert absolute == posixpath.normpath(absolute)


@pytest.mark.parametrize("path", ["", "\0", "/", "..", "/etc", "/workx", "../work2", "/tmp/..", "/tmpfile"])
def test_paths_outside_are_refused(path):
    with pytest.raises(ToolError):
        inside(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    links=st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.sampled_from(["..", "a", "b", "c", "d", "secret", "/", "/work"]), min_size=1, max_size=5),
        max_size=3,
    ),
    path=st.lists(st.sampled_from(["a", "b", "c", "d", "secret", "new"]), min_size=1, max_size=4),
)
def test_no_arrangement_of_links_leads_out(tmp_path_factory, links, path):
    """A secret lies above the workspace; whatever the links, it is neither read nor changed, and nothing appears."""
    outer = tmp_path_factory.mktemp("outer")
    (outer / "secret").write_text("host")
    for name in ("root/work/d", "root/tmp"):
        (outer / name).mkdir(parents=True)
    (outer / "root/work/d/secret").write_text("inside")
    for name, parts in links.items():
        os.symlink("/".join(parts), outer / "root/work" / name)
    fd = os.open(outer / "root", os.O_RDONLY | os.O_DIRECTORY)
    try:
        workspace = Workspace(fd=fd, uid=os.getuid(), gid=os.getgid(), limit_bytes=1000)
        for action in (lambda: workspace.read("/".join(path)), lambda: workspace.write("/".join(path), b"x")):
            try:
                assert action() in (b"inside", b"x", None)
            except ToolError:
                continue
    finally:
        os.close(fd)
    assert (outer / "secret").read_text() == "host"
    assert sorted(entry.name for entry in outer.iterdir()) == ["root", "secret"]


def test_absolute_links_mean_the_sandboxes_own_root(root, workspace):
    (root / "work" / "f").write_text("mine")
    (root / "tmp" / "link").symlink_to("/work/f")
    assert workspace.read("/tmp/link") == b"mine"


def test_missing_directories_are_made_and_existing_files_replaced(root, workspace):
    workspace.write("a/b/c", b"long content")
    workspace.write("a/b/c", b"short")
    assert (root / "work/a/b/c").read_bytes() == b"short"
    with pytest.raises(ToolError, match="Not a directory"):
        workspace.write("a/b/c/d", b"x")


def test_a_file_over_the_limit_is_refused(root, workspace):
    (root / "work" / "fits").write_bytes(b"x" * 1000)
    (root / "work" / "big").write_bytes(b"x" * 1001)
    assert len(workspace.read("fits")) == 1000
    with pytest.raises(ToolError, match="more than 1000 bytes"):
        workspace.read("big")


def test_undecodable_names_travel(root, workspace, tmp_path):
    (root / "work" / "d").mkdir()
    with open(os.path.join(os.fsencode(root), b"work/d/\xff"), "wb") as file:
        file.write(b"x")
    assert workspace.get("d", tmp_path / "out").files == 1
    assert os.listdir(os.fsencode(tmp_path / "out")) == [b"\xff"]
    with pytest.raises(ToolError):
        workspace.read("\ud800")
