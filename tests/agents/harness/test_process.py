"""A program as a plain process: its environment, its streams, its end, and that of everything it has started."""

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from agar.agents.harness.process import ProcessPlace, _delete
from agar.errors import ToolError

DAEMON = """
import os, subprocess, sys
code = "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); "
subprocess.Popen([sys.executable, "-S", "-c", code + "time.sleep(float(sys.argv[1]))", sys.argv[1]])
print("started", flush=True)
"""


@pytest.fixture
async def place():
    async with ProcessPlace(output_bytes=10_000) as place:
        yield place


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *words]


def processes(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


async def test_it_gets_what_was_declared_and_nothing_of_ours(place, monkeypatch):
    monkeypatch.setenv("AGAR_TEST_SECRET", "sk-secret-4711")
    result = await place.exec(["env"], env={"MINE": "1"})
    names = {line.partition("=")[0] for line in result.stdout.splitlines()}
    assert names == {"PATH", "HOME", "LANG", "TMPDIR", "MINE", "PWD"}
    assert "sk-secret" not in result.stdout


async def test_its_streams_its_folder_and_its_exit_code_come_back(place):
    await place.write("in/given", "data")
    code = "import os, sys; print(sys.stdin.read().upper(), os.listdir('in')); sys.stderr.write('err'); sys.exit(3)"
    result = await place.exec(python(code), stdin="text")
    assert (result.code, result.stdout, result.stderr) == (3, "TEXT ['given']\n", "err")
    assert (result.killed_by, result.truncated) == (None, False)
    result = await place.exec(["sh", "-c", "cat; echo made > out; kill -9 $$"])
    assert (result.code, result.stdout) == (137, "")
    assert await place.read("out") == b"made\n"
    assert (await place.exec(["no-such-program"])).code == 127


async def test_the_whole_tree_is_gone_when_it_returns_daemons_included(place):
    mark = f"5{os.getpid()}.25"
    result = await place.exec(python(DAEMON, mark))
    assert result.stdout == "started\n"
    assert processes(mark) == []


async def test_the_whole_tree_is_killed_at_the_deadline(place):
    mark = f"6{os.getpid()}.25"
    result = await place.exec(python(DAEMON + "import time; time.sleep(60)", mark), timeout_s=1.5)
    assert (result.killed_by, result.code) == ("timeout", 137)
    assert processes(mark) == []


async def test_a_flood_is_cut_and_ends_it(place):
    result = await place.exec(["yes"], timeout_s=40)
    assert (result.killed_by, result.truncated, len(result.stdout)) == ("output", True, 10_000)


async def test_cancelling_kills_it_and_closing_deletes_its_folder():
    mark = f"7{os.getpid()}.25"
    async with ProcessPlace(output_bytes=1000) as place:
        folder = Path((await place.exec(["pwd"])).stdout.strip())
        running = asyncio.create_task(place.exec(python(f"open('up', 'w'); import time; time.sleep({mark})")))
        async with asyncio.timeout(40):
            while not (folder / "up").exists():  # noqa: ASYNC110 (it is another process that makes it)
                await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert processes(mark) == []
    assert not folder.parent.exists()


async def test_links_that_it_plants_lead_nowhere(place, tmp_path):
    (tmp_path / "secret").write_text("secret")
    await place.exec(["sh", "-c", f"ln -s {tmp_path} folder; ln -s {tmp_path}/secret file; mkfifo fifo; echo a > real"])
    for path in ("file", "folder/secret", "fifo", "../stdin", "/etc/passwd"):
        with pytest.raises(ToolError):
            await place.read(path)
    with pytest.raises(ToolError):
        await place.write("folder/planted", "x")
    got = await place.get(".", tmp_path / "copy")
    assert (got.files, dict(got.skipped)) == (1, {"symlink": 2, "special": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "secret"]


async def test_a_second_close_leaves_a_strangers_file_alone_and_a_deleted_folder_is_closed():
    place = ProcessPlace(output_bytes=10)
    number = place._files.fd
    shutil.rmtree(place._folder)  # a program may do that
    await place.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    strangers = os.open("/", os.O_RDONLY)
    os.dup2(strangers, number)
    await place.close()
    os.fstat(number)
    os.close(number)
    if strangers != number:
        os.close(strangers)


def test_what_a_program_has_made_read_only_is_deleted():
    folder = Path(tempfile.mkdtemp(prefix="agar-test-"))
    (folder / "go" / "mod").mkdir(parents=True)
    (folder / "go" / "mod" / "file").write_text("x")
    for path in (folder, folder / "go", folder / "go" / "mod", folder / "go" / "mod" / "file"):
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
    for path in (folder / "go" / "mod", folder / "go"):
        path.chmod(0o500)
    child = os.fork()
    if child == 0:  # root may delete anything
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        _delete(folder)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not folder.exists()
