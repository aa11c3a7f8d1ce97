"""The root file system that is packed from this machine's packages."""

import io
import shutil
import tarfile

import pytest

from agar.errors import UnsupportedPlatformError
from agar.sandbox.docker.image import HostTree, _closure


def test_dependencies_come_along_by_their_first_choice_that_is_there():
    needs = {"a": [["gone", "b"], ["virtual"]], "b": [["a"]], "c": [], "d": []}
    assert _closure(["a", "nowhere"], needs, {"virtual": "c"}) == ["a", "b", "c"]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no dpkg on this machine")
def test_a_tree_holds_a_shell_its_libraries_and_nothing_of_the_machine():
    tree = HostTree(["dash", "coreutils"])
    assert {"dash", "coreutils", "libc6"} <= set(tree.packages)
    archive = io.BytesIO()
    assert tree.write(archive) > 50
    archive.seek(0)
    with tarfile.open(fileobj=archive) as tar:
        members = {member.name: member for member in tar}
    assert {"usr/bin/dash", "usr/bin/cat", "etc/passwd", "work", "tmp"} <= set(members)
    assert not [name for name in members if name.startswith(("root", "home", "var", "opt"))]
    assert "etc/shadow" not in members
    assert all(member.uid == 0 and not member.mode & 0o6000 for member in members.values())
    assert HostTree(["dash", "coreutils"]).digest == tree.digest != HostTree(["dash"]).digest


def test_a_machine_without_dpkg_is_told_what_to_set(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UnsupportedPlatformError, match="set `image`"):
        HostTree()
