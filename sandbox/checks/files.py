"""`read`, `write`, `put`, `get`, `snapshot`, `restore`, `fork`."""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from agar.errors import ToolError
from agar.sandbox.base import Sandbox
from agar.sandbox.checks.check import Check, Make, expect, expect_raises, expect_that, lines
from agar.sandbox.config import SandboxSpec


async def keeps_files_between_commands(sandbox: Sandbox) -> None:
    """`write`, `exec`, `read` see one tree; bytes survive."""
    data = bytes(range(256))
    await sandbox.write("deep/er/b", data)
    expect("read", await sandbox.read("deep/er/b"), data)
    await sandbox.write("f", "text")
    expect("cat", (await sandbox.exec("cat f")).stdout, "text")
    await sandbox.write("/work/f", "new")
    expect("read of an absolute path", await sandbox.read("/work/f"), b"new")
    await sandbox.write("/tmp/f", "temporary")
    expect("cat of /tmp", (await sandbox.exec("cat /tmp/f")).stdout, "temporary")
    await sandbox.write("empty", b"")
    expect("read of an empty file", await sandbox.read("empty"), b"")


async def refuses_paths_outside(sandbox: Sandbox) -> None:
    """Paths that leave the workspace, or name no regular file."""
    await sandbox.write("d/f", "x")
    for path in ("/etc/passwd", "../etc/passwd", "d/../../x", "", "a\0b", "/", "/workshop", "nothing", "d"):
        await expect_raises(ToolError, f"read {path!r}", sandbox.read(path))
    for path in ("/etc/passwd", "../x", "", "/usr/x", "d"):
        await expect_raises(ToolError, f"write {path!r}", sandbox.write(path, "x"))


async def copies_trees(sandbox: Sandbox) -> None:
    """`put` and `get`, files and directories; links are counted."""
    with tempfile.TemporaryDirectory() as place:
        source, target, one = (Path(place, name) for name in ("source", "target", "one"))
        (source / "sub").mkdir(parents=True)
        (source / "a").write_bytes(b"A")
        (source / "sub" / "b").write_bytes(b"BB")
        (source / "link").symlink_to("/etc/passwd")
        sent = await sandbox.put(source, "tree")
        expect("put", (sent.files, sent.size_bytes, dict(sent.skipped)), (2, 3, {"symlink": 1}))
        expect("cat", (await sandbox.exec("cat tree/sub/b")).stdout, "BB")
        back = await sandbox.get("tree", target)
        expect("get", (back.files, back.size_bytes), (2, 3))
        expect("content", (target / "sub" / "b").read_bytes(), b"BB")
        await sandbox.put(source / "a", "one")
        await sandbox.get("one", one)
        expect("one file", one.read_bytes(), b"A")
        await expect_raises(ToolError, "get of nothing", sandbox.get("nothing", target))


async def leads_no_link_out(sandbox: Sandbox) -> None:
    """Links, FIFOs and strange names that a program has planted."""
    planted = await sandbox.exec(
        "mkdir tree; echo good > tree/good; ln -s /etc/passwd tree/link; ln -s /proc/self/root up;"
        "mkfifo tree/fifo fifo;"
        r"ln tree/good tree/hard; printf x > tree/$(printf '\377'); ln -s loop loop; ln -s tree/good inside; echo done"
    )
    expect("planting", planted.stdout, "done\n")
    for path in ("tree/link", "up/etc/passwd", "fifo", "loop"):
        await expect_raises(ToolError, f"read {path!r}", sandbox.read(path))
    for path in ("fifo", "loop", "up/etc/f", "tree/link"):
        await expect_raises(ToolError, f"write {path!r}", sandbox.write(path, "x"))
    expect("a link that stays inside", await sandbox.read("inside"), b"good\n")
    with tempfile.TemporaryDirectory() as place:
        got = await sandbox.get("tree", Path(place, "copy"))
        names = {os.fsencode(name) for name in os.listdir(Path(place, "copy"))}
        expect("files", names, {b"good", b"hard", b"\xff"})
        expect("skipped", dict(got.skipped), {"symlink": 1, "special": 1})


async def puts_nothing_beyond_links(sandbox: Sandbox) -> None:
    """`put` onto links that a program has planted: refused, or where the program finds it."""
    with tempfile.TemporaryDirectory() as place:
        outside, source = Path(place, "outside"), Path(place, "source")
        for folder in (outside, source / "sub"):
            folder.mkdir(parents=True)
        (outside / "f").write_bytes(b"outside")
        for name in ("f", "sub/g"):
            (source / name).write_bytes(b"put")
        planted = await sandbox.exec(
            f"ln -s {outside}/f file; ln -s {outside} folder; ln -s / root; ln -s /nowhere nowhere; ln -s loop loop;"
            f"mkdir tree; ln -s /nowhere tree/f; ln -s {outside} tree/sub; ln -s there inside; echo done"
        )
        expect("planting", planted.stdout, "done\n")
        for target in ("file", "folder/f", "folder/new/f", "root/planted", "nowhere", "loop", "loop/f"):
            await expect_raises(ToolError, f"put of a file onto {target!r}", sandbox.put(source / "f", target))
        for target in ("file", "folder", "root", "nowhere", "loop"):
            await expect_raises(ToolError, f"put of a tree onto {target!r}", sandbox.put(source, target))
        with contextlib.suppress(ToolError):
            await sandbox.put(source, "tree")
            expect("what was put over links", (await sandbox.exec("cat tree/f tree/sub/g")).stdout, "putput")
        await sandbox.put(source / "f", "inside")
        expect("what was put onto a link that stays inside", (await sandbox.exec("cat there")).stdout, "put")
        expect("the outside", os.listdir(outside), ["f"])
        expect("its file", await asyncio.to_thread((outside / "f").read_bytes), b"outside")


async def shows_mounts_read_only(make: Make, spec: SandboxSpec) -> None:
    """`SandboxSpec.mounts`."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        await asyncio.to_thread(Path(place, "f").write_text, "shown\n")
        mounted = SandboxSpec.model_validate({**spec.model_dump(), "mounts": {"/shown": Path(place)}})
        async with make(mounted) as sandbox:
            result = await sandbox.exec("cat /shown/f; echo x > /shown/f; echo x > /shown/new; rm -f /shown/f; true")
            expect("stdout", result.stdout, "shown\n")
        expect("names", os.listdir(place), ["f"])


async def starts_as_a_folder(make: Make, spec: SandboxSpec) -> None:
    """`SandboxSpec.workspace`: there at once, to be changed at will, and untouched outside."""
    with tempfile.TemporaryDirectory() as place:
        await asyncio.to_thread(_plant, Path(place))
        based = SandboxSpec.model_validate({**spec.model_dump(), "workspace": Path(place)})
        async with make(based) as one, make(based) as two:
            await one.write("sub/f", "changed outside\n")
            change = "echo more >> sub/f; chmod 700 run; rm sub/gone; mkdir new; touch new/g"
            result = await one.exec(
                f"cat sub/f; ./run; readlink link; {change}; stat -c '%u %a' sub/f run;"
                "git init -q . && git add -A && echo added"
            )
            expect("stdout", lines(result)[:3], ["changed outside", "ran", "sub/f"])
            expect("owners, modes", lines(result)[3:], [f"{spec.user} 644", f"{spec.user} 700", "added"])
            expect("what is read", await one.read("sub/f"), b"changed outside\nmore\n")
            await expect_raises(ToolError, "a deleted file", one.read("sub/gone"))
            expect("a neighbour", await two.read("sub/f"), b"as it was\n")
        expect("the folder", sorted(os.listdir(place)), ["link", "run", "sub"])
        expect("its file", await asyncio.to_thread(Path(place, "sub", "f").read_bytes), b"as it was\n")


def _plant(place: Path) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "f").write_text("as it was\n")
    (place / "sub" / "gone").write_text("x")
    (place / "run").write_text("#!/bin/sh\necho ran\n")
    (place / "run").chmod(0o755)
    (place / "link").symlink_to("sub/f")


async def snapshots_and_restores(make: Make, spec: SandboxSpec) -> None:
    """A snapshot is the files of its moment; it can be restored here and elsewhere."""
    async with make(spec) as one, make(spec) as two:
        await one.write("d/f", "first")
        await one.write("/tmp/t", b"\0\xff")
        snapshot = await one.snapshot()
        expect("files", (snapshot.files, snapshot.size_bytes), (2, 7))
        await one.write("d/f", "second")
        await one.write("later", "x")
        await two.write("other", "x")
        await two.restore(snapshot)
        expect("elsewhere", (await two.read("d/f"), await two.read("/tmp/t")), (b"first", b"\0\xff"))
        await expect_raises(ToolError, "a file that was there before", two.read("other"))
        await one.restore(snapshot)
        expect("here", await one.read("d/f"), b"first")
        await expect_raises(ToolError, "a file of later", one.read("later"))


async def snapshots_modes_links_and_times(make: Make, spec: SandboxSpec) -> None:
    """What a build or git would notice."""
    async with make(spec) as one, make(spec) as two:
        await one.exec(
            "echo 'echo ran' > run; chmod 755 run; ln -s run link; mkdir -m 700 d; mkdir e; echo x > e/f; chmod 500 e;"
            "touch -d @1000000000 run; mkfifo p"
        )
        await two.restore(await one.snapshot())
        result = await two.exec("./link; readlink link; stat -c '%a %Y' run; stat -c '%a %u' d e; ls; echo y > d/f")
        expect("lines", lines(result)[:2], ["ran", "run"])
        expect("mode and time", lines(result)[2], "755 1000000000")
        expect("folders", lines(result)[3:5], [f"700 {spec.user}", f"500 {spec.user}"])
        expect("names", lines(result)[5:], ["d", "e", "link", "run"])
        expect("code", result.code, 0)


async def forks(make: Make, spec: SandboxSpec) -> None:
    """`fork` gives independent copies."""
    async with make(spec) as parent:
        await parent.write("f", "old")
        copies = await parent.fork(2)
        try:
            await copies[0].write("f", "new")
            seen = [await sandbox.read("f") for sandbox in (parent, *copies)]
            expect("f in parent and copies", seen, [b"old", b"new", b"old"])
        finally:
            for copy in copies:
                await copy.close()
        expect("the parent after its copies", await parent.read("f"), b"old")


async def refuses_a_forged_snapshot(make: Make, spec: SandboxSpec) -> None:
    """An archive that is none of ours."""
    from agar.sandbox.base import Snapshot

    async with make(spec) as sandbox:
        await expect_raises(ToolError, "garbage", sandbox.restore(Snapshot(archive=b"x" * 2000, files=0, size_bytes=0)))
        result = await sandbox.exec("echo usable")
        expect_that("usable afterwards", result.stdout == "usable\n", result)


FILES = (
    Check(run=keeps_files_between_commands, real=False),
    Check(run=refuses_paths_outside, real=False),
    Check(run=copies_trees, real=False),
    Check(run=leads_no_link_out),
    Check(run=puts_nothing_beyond_links),
    Check(run=shows_mounts_read_only, makes=True, optional=True),
    Check(run=starts_as_a_folder, makes=True, optional=True),
    Check(run=snapshots_and_restores, makes=True, real=False),
    Check(run=snapshots_modes_links_and_times, makes=True),
    Check(run=forks, makes=True, real=False),
    Check(run=refuses_a_forged_snapshot, makes=True),
)
"""Checks of the workspace."""
