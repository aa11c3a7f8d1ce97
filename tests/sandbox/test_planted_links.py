"""Links that a program has planted where the owner of its sandbox puts, or gets, files and trees.

Whatever is planted: nothing outside the sandbox changes, a put that succeeds is where the program finds it, one that
does not says what was expected, and the sandbox goes on. `read` and `write` are in `test_hostile.py`; sandboxes behind
a server go through the kit's `puts_nothing_beyond_links`.
"""

import asyncio
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from agar.errors import ToolError
from agar.sandbox import SandboxSpec, create
from agar.sandbox.base import Sandbox, Transfer
from agar.sandbox.bubblewrap import BubblewrapSandbox

pytestmark = pytest.mark.sandbox

NEW = b"put by the owner\n"
TREE = {"f": NEW, "sub/g": NEW, "sub/deep/h": NEW}
RACE_S = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """Links, and what is then put where.

    Attributes:
        code: a shell script; `OUTSIDE` is a folder of the host that everybody may write to, with a file `f`.
        target: where the owner puts the file, or the tree.
        tree: whether it is a tree.
        refused: whether it must be refused, by every backend; None where one may refuse it and another put it inside.
    """

    code: str
    target: str = "x"
    tree: bool = False
    refused: bool | None = True


PLANTS = {
    # ------------------------------------------------------------------------------------------------- a file
    "a_link_to_a_file": Plant(code="ln -s OUTSIDE/f x"),
    "a_link_to_a_new_file": Plant(code="ln -s OUTSIDE/planted x"),
    "a_link_to_the_system": Plant(code="ln -s /etc/passwd x"),
    "a_link_to_a_device": Plant(code="ln -s /dev/null x"),
    "a_link_to_nowhere": Plant(code="ln -s /nowhere x"),
    "a_link_to_nowhere_upwards": Plant(code="ln -s ../nowhere x"),
    "a_link_to_itself": Plant(code="ln -s x x"),
    "two_links_to_each_other": Plant(code="ln -s y x; ln -s x y"),
    "a_chain_of_links": Plant(code="ln -s OUTSIDE/f l0; for i in 1 2 3; do ln -s l$((i-1)) l$i; done; mv l3 x"),
    "a_linked_folder": Plant(code="ln -s OUTSIDE d", target="d/f"),
    "a_linked_folder_above_new_ones": Plant(code="ln -s OUTSIDE d", target="d/new/deep/f"),
    "a_linked_folder_in_the_middle": Plant(code="mkdir a; ln -s OUTSIDE a/d", target="a/d/f"),
    "the_root_as_a_folder": Plant(code="ln -s / d", target="d/planted"),
    "the_root_above_new_folders": Plant(code="ln -s / d", target="d/planted/f"),
    "the_root_by_steps_upwards": Plant(code="ln -s ../../../.. d", target="d/planted"),
    "the_system_as_a_folder": Plant(code="ln -s /etc d", target="d/planted"),
    "the_shared_memory_as_a_folder": Plant(code="ln -s /shm d; ln -s /dev/shm e", target="d/planted"),
    "a_process_s_root": Plant(code="ln -s /proc/self/root d", target="d/etc/planted"),
    "a_link_loop_as_a_folder": Plant(code="ln -s d d", target="d/f"),
    "a_pipe": Plant(code="mkfifo x"),
    "a_linked_pipe": Plant(code="mkfifo p; ln -s p x"),
    "a_folder": Plant(code="mkdir x"),
    "the_outside_s_double": Plant(code="mkdir -p OUTSIDE; ln -s OUTSIDE d", target="d/f", refused=False),
    "the_outside_s_double_by_steps_upwards": Plant(code="ln -s ../.. d", target="d/tmp/double/f", refused=False),
    "a_link_that_stays_inside": Plant(code="ln -s /work/there x", refused=False),
    "a_hard_link": Plant(code="echo mine > y; ln y x", refused=False),
    "a_hard_link_to_the_system": Plant(code="ln /etc/passwd x || ln /usr/bin/env x || true", refused=False),
    # ------------------------------------------------------------------------------------------------- a tree
    "a_tree_that_is_a_link": Plant(code="ln -s OUTSIDE x", tree=True),
    "a_tree_that_is_the_root": Plant(code="ln -s / x", tree=True),
    "a_tree_that_is_the_system": Plant(code="ln -s /etc x", tree=True),
    "a_tree_that_is_a_link_to_nowhere": Plant(code="ln -s /nowhere x", tree=True),
    "a_tree_that_is_a_loop": Plant(code="ln -s x x", tree=True),
    "a_tree_below_a_link": Plant(code="ln -s OUTSIDE d", target="d/x", tree=True),
    "a_tree_that_is_a_file": Plant(code="echo mine > x", tree=True),
    "a_linked_file_in_a_tree": Plant(code="mkdir x; ln -s OUTSIDE/f x/f", tree=True, refused=None),
    "a_link_to_nowhere_in_a_tree": Plant(code="mkdir x; ln -s /nowhere x/f", tree=True, refused=None),
    "a_loop_in_a_tree": Plant(code="mkdir x; ln -s f x/f", tree=True, refused=None),
    "a_linked_folder_in_a_tree": Plant(code="mkdir x; ln -s OUTSIDE x/sub", tree=True, refused=None),
    "the_root_in_a_tree": Plant(code="mkdir x; ln -s / x/sub", tree=True, refused=None),
    "a_deep_linked_folder_in_a_tree": Plant(code="mkdir -p x/sub; ln -s OUTSIDE x/sub/deep", tree=True, refused=None),
    "a_pipe_in_a_tree": Plant(code="mkdir x; mkfifo x/f", tree=True, refused=None),
    "a_hard_link_in_a_tree": Plant(code="mkdir x; echo mine > y; ln y x/f", tree=True, refused=False),
    "a_tree_that_is_linked_inside": Plant(code="mkdir there; ln -s there x", tree=True, refused=False),
}


@pytest.fixture
def outside(tmp_path) -> Path:
    """A folder of the host that nothing but the owner's own rights protects."""
    folder = tmp_path / "outside"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "f").write_text("host")
    (folder / "f").chmod(0o666)
    return folder


@pytest.fixture
def tree(tmp_path) -> Path:
    """What the owner puts: a folder, and in it the file that it puts alone."""
    folder = tmp_path / "tree"
    for name, content in TREE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def picture(folder: Path) -> dict[str, object]:
    """All that a stranger could have changed of a folder: names, contents, modes, owners, kinds."""
    found: dict[str, object] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, status.st_nlink, content)
    return found


async def plant(sandbox: Sandbox, code: str, outside: Path) -> None:
    planted = await sandbox.exec(f"set -e; {code}; echo planted".replace("OUTSIDE", str(outside)))
    assert planted.stdout == "planted\n", planted.stderr


@pytest.mark.parametrize("name", PLANTS)
async def test_what_is_put_onto_planted_links_stays_inside(name, hostile_sandbox, outside, tree):
    wanted = PLANTS[name]
    source, files = (tree, TREE) if wanted.tree else (tree / "f", {"": NEW})
    await plant(hostile_sandbox, wanted.code, outside)
    before = picture(outside)
    sent, said = None, ""
    try:
        sent = await hostile_sandbox.put(source, wanted.target)
    except ToolError as error:
        said = str(error)
    assert wanted.refused in (None, sent is None), said
    if sent is None:
        assert repr(wanted.target)[:-1] in said, "it names what was asked for"
        assert ": name a" in said, "it says what to do"
    else:
        assert sent.files == len(files)
        for path, content in files.items():
            place = os.path.join(wanted.target, path) if path else wanted.target
            assert (await hostile_sandbox.exec(["cat", place])).stdout.encode() == content, "the program finds it"
    assert picture(outside) == before
    await hostile_sandbox.put(tree, "another/place")
    after = await hostile_sandbox.exec("cat another/place/sub/g")
    assert after.stdout.encode() == NEW, "the sandbox goes on"


SWAPS = {
    "a_folder": "mkdir -p x/sub; while :; do mv x/sub x/s; ln -s OUTSIDE x/sub; rm x/sub; mv x/s x/sub; done",
    "a_folder_for_the_root": "mkdir -p x/sub; while :; do mv x/sub x/s; ln -s / x/sub; rm x/sub; mv x/s x/sub; done",
    "a_file": "mkdir -p x; while :; do ln -sf OUTSIDE/f x/l; mv x/l x/f; ln -sf /work/y x/l; mv x/l x/f; done",
    "the_tree": "while :; do mkdir -p x; mv x y; ln -s OUTSIDE x; rm x; mv y x; rm -rf x y; done",
    "folders_moved_upwards": "mkdir -p x/sub/deep a; while :; do mv x/sub/deep a/deep; mv a/deep x/sub/deep; done",
}
"""What a program does all the while, as fast as it can."""


@pytest.mark.parametrize("name", SWAPS)
async def test_links_that_come_and_go_during_a_transfer_lead_nowhere(name, hostile_sandbox, outside, tree, tmp_path):
    before = picture(outside)
    script = f"echo going; exec 2>/dev/null; {SWAPS[name]}".replace("OUTSIDE", str(outside))
    swapping = await hostile_sandbox.start(script, timeout_s=50)
    assert await swapping.read() == b"going\n"
    seen = Counter[str]()
    deadline = asyncio.get_running_loop().time() + RACE_S
    while asyncio.get_running_loop().time() < deadline or not seen:
        for work in (hostile_sandbox.put(tree, "x"), hostile_sandbox.get("x", tmp_path / "got")):
            try:
                moved = await work
                assert isinstance(moved, Transfer)
                seen["moved"] += 1
            except ToolError:
                seen["refused"] += 1
        assert all(not path.is_symlink() for path in tmp_path.rglob("*"))
        assert "host" not in {path.read_text() for path in (tmp_path / "got").rglob("*") if path.is_file()}
    await swapping.close()
    assert picture(outside) == before
    await hostile_sandbox.put(tree, "another/place")
    assert (await hostile_sandbox.exec("cat another/place/f")).stdout.encode() == NEW


async def test_a_tree_full_of_links_comes_out_as_its_files_alone(hostile_sandbox, outside, tmp_path):
    await plant(
        hostile_sandbox,
        "mkdir -p x/sub; echo mine > x/f; ln x/f x/hard; ln -s OUTSIDE/f x/file; ln -s OUTSIDE x/folder;"
        "ln -s / x/root; ln -s . x/self; ln -s .. x/above; ln -s loop x/loop; ln -s /nowhere x/nowhere;"
        "ln -s ../f x/sub/inside; ln -s /proc/self/root/etc/passwd x/sub/passwd; mkfifo x/sub/pipe;"
        "ln -s OUTSIDE/f link; ln -s OUTSIDE folder",
        outside,
    )
    got = await hostile_sandbox.get("x", tmp_path / "got")
    assert (got.files, dict(got.skipped)) == (2, {"symlink": 9, "special": 1})
    came = {str(path.relative_to(tmp_path / "got")): path for path in (tmp_path / "got").rglob("*")}
    assert sorted(came) == ["f", "hard", "sub"]
    assert [came[name].read_text() for name in ("f", "hard")] == ["mine\n"] * 2
    assert [came[name].stat().st_nlink for name in ("f", "hard")] == [1, 1]
    for path in ("link", "folder", "folder/f", "x/loop", "x/nowhere", "x/sub/passwd", "x/sub/pipe"):
        with pytest.raises(ToolError, match=": name a"):
            await hostile_sandbox.get(path, tmp_path / "not")
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize("kind", ["bubblewrap", "docker"])
async def test_hard_links_to_files_that_two_sandboxes_began_with_reach_neither_the_other_nor_the_host(
    kind, request, outside, tree
):
    spec = request.getfixturevalue("docker_spec") if kind == "docker" else SandboxSpec()
    based = spec.model_copy(update={"workspace": outside})
    before = picture(outside)
    async with create(based) as one, create(based) as two:
        await plant(one, "ln f hard; ln -s f soft; ln -s /work/f far; mkdir x; ln f x/f", outside)
        for target in ("hard", "soft", "far"):
            await one.put(tree / "f", target)
        await one.put(tree, "x")
        assert (await one.exec("cat f soft far x/f")).stdout.encode() == NEW * 4
        assert (await two.exec("cat f; ls")).stdout == "hostf\n"
    assert picture(outside) == before


async def test_mounts_are_not_reached_by_links(host, outside, tree):
    before = picture(outside)
    async with BubblewrapSandbox(SandboxSpec(mounts={"/shown": outside}), host=host) as sandbox:
        code = "ln /shown/f hard || true; ln -s /shown/f x; ln -s /shown d; mkdir t; ln -s /shown t/sub"
        await plant(sandbox, code, outside)
        for source, target in ((tree / "f", "x"), (tree / "f", "d/f"), (tree / "f", "d/new"), (tree, "d"), (tree, "t")):
            with pytest.raises(ToolError, match=": name another path"):
                await sandbox.put(source, target)
        await sandbox.put(tree / "f", "hard")
        assert (await sandbox.exec("cat hard /shown/f")).stdout.encode() == NEW + b"host"
    assert picture(outside) == before
