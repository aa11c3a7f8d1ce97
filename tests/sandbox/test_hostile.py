"""Programs that want out, over every backend that isolates: what the table of `test_escapes.py` has no place for."""

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest

from agar.errors import ToolError
from agar.sandbox import SandboxSpec
from agar.sandbox.bubblewrap import BubblewrapSandbox

pytestmark = pytest.mark.sandbox

SYSCALL = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return "ok" if libc.syscall(number, *arguments) >= 0 else errno.errorcode[ctypes.get_errno()]
"""


@pytest.fixture
def sandbox(hostile_sandbox):
    return hostile_sandbox


async def python(sandbox, python3, code, **options):
    await sandbox.write("program.py", SYSCALL + code)
    return await sandbox.exec([python3, "-I", "-S", "program.py"], **options)


async def test_the_callers_environment_is_not_in_any_process(sandbox, monkeypatch):
    monkeypatch.setenv("AGAR_TEST_API_KEY", "sk-secret-4711")
    result = await sandbox.exec("cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ | tr '\\0' '\\n'; env")
    assert "sk-secret-4711" not in result.stdout
    assert "HOME=/work" in result.stdout


async def test_nothing_of_the_host_is_visible_but_programs(sandbox):
    here = os.path.dirname(__file__)
    result = await sandbox.exec(f"ls /; cat /etc/shadow /proc/1/root/etc/shadow; ls /root /home {here} /var /sys /run")
    programs = {"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr", "work"}
    empty = {"run", "/run:", "sys", "/sys:"}
    assert set(result.stdout.split()) <= programs | empty
    assert "root:" not in result.stdout


async def test_only_the_workspace_and_tmp_can_be_written(sandbox):
    result = await sandbox.exec(
        "for d in / /usr /usr/bin /etc /dev /proc /proc/sys/kernel /proc/1; do touch $d/x 2>/dev/null && echo $d; done;"
        "for d in /work /tmp /dev/shm; do touch $d/x && echo $d; done;"
        "echo x > /proc/sys/kernel/core_pattern; echo x > /proc/sysrq-trigger; echo 1 > /proc/self/oom_score_adj"
    )
    assert result.stdout.split() == ["/work", "/tmp", "/dev/shm"]


async def test_no_port_of_the_host_can_be_reached(sandbox, python3):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"""
import socket
for target in [("127.0.0.1", {port}), ("169.254.169.254", 80), ("8.8.8.8", 53)]:
    try:
        socket.create_connection(target, 2)
        print("reached", target)
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
        result = await python(sandbox, python3, code)
    assert result.stdout.split() == ["ECONNREFUSED", "ENETUNREACH", "ENETUNREACH"]


async def test_kernel_surface_is_closed(sandbox, python3):
    code = """
import socket
for family in (38, 40, 17, 21, 40 | 1 << 32):
    print(call(41, ctypes.c_ulong(family), ctypes.c_ulong(2), ctypes.c_ulong(0)))
for number in (425, 101, 310, 321, 298, 248, 250, 323, 438, 435):
    print(call(number, 0, 0, 0, 0, 0))
print(call(272, 0x10000000), call(272, 0x20000), call(308, 0, 0), call(165, 0, 0, 0, 0, 0), call(161, b"/"))
print(call(56, 0x10000011, 0, 0, 0, 0), call(500))
"""
    if os.uname().machine != "x86_64":
        pytest.skip("system call numbers of this test are x86-64's")
    result = await python(sandbox, python3, code)
    lines = result.stdout.split()
    assert lines[:5] == ["EPERM"] * 5, "socket families: AF_ALG, AF_VSOCK, AF_PACKET, AF_RDS, AF_VSOCK in high bits"
    assert lines[5] == "ENOSYS", "io_uring_setup"
    assert lines[6:14] == ["EPERM"] * 8, (
        "ptrace, process_vm_readv, bpf, perf_event_open, add_key, keyctl, userfaultfd, pidfd_getfd"
    )
    assert lines[14] == "ENOSYS", "clone3"
    assert lines[15:20] == ["EPERM"] * 5, "unshare user, unshare mount, setns, mount, chroot"
    assert lines[20] == "EPERM", "clone with a new user namespace"
    assert lines[21] in ("ENOSYS", "EPERM"), "an unknown call"


async def test_ordinary_programs_still_run(sandbox, python3):
    code = """
import subprocess, threading, socket, os, tempfile
worker = threading.Thread(target=lambda: print("thread"), daemon=True); worker.start(); worker.join()
print(subprocess.run(["sh", "-c", "echo child"], capture_output=True, text=True).stdout.strip())
a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(9).decode())
server = socket.create_server(("127.0.0.1", 0)); socket.create_connection(server.getsockname()); print("loopback")
with tempfile.NamedTemporaryFile() as file: print("file")
print(os.getuid(), socket.gethostname())
"""
    result = await python(sandbox, python3, code)
    assert result.stdout.split() == ["thread", "child", "pair", "loopback", "file", "1000", "sandbox"], result.stderr
    shell = await sandbox.exec(
        "echo out > /dev/stdout; echo err > /dev/stderr; echo x | tee /dev/stderr | wc -c; id -un"
    )
    assert (shell.stdout, shell.stderr) == ("out\n2\nagar\n", "err\nx\n")


async def test_no_descriptor_of_ours_is_inherited(sandbox):
    result = await sandbox.exec("for d in self 1; do readlink /proc/$d/fd/* | sed 's/[0-9]//g'; done")
    assert set(result.stdout.split("\n")) <= {
        "/memfd:agar (deleted)",
        "pipe:[]",
        "anon_inode:[eventfd]",
        "/dev/null",
        "",
    }


async def test_a_fork_bomb_stays_inside(sandbox):
    began = time.monotonic()
    result = await sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 20", timeout_s=1.0)
    assert result.killed_by in ("timeout", "output") or result.code != 0
    assert time.monotonic() - began < 20
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_threads_and_processes_are_bounded(sandbox, python3):
    code = """
import os, time
made = 0
try:
    while made < 200:
        if os.fork() == 0:
            time.sleep(20)
        made += 1
except BlockingIOError:
    print(made)
"""
    result = await python(sandbox, python3, code)
    assert 8 <= int(result.stdout) <= 32


async def test_a_memory_hog_is_stopped(sandbox, python3):
    result = await python(sandbox, python3, "hog = [bytearray(1 << 20) for _ in range(500)]; print('had it')")
    assert "had it" not in result.stdout
    assert (result.code, result.killed_by) == (137, "memory") or "MemoryError" in result.stderr
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_endless_output_is_cut(sandbox):
    result = await sandbox.exec("yes & yes >&2")
    assert (result.code, result.killed_by, result.truncated) == (137, "output", True)
    assert max(len(result.stdout), len(result.stderr)) == sandbox.spec.output_bytes


async def test_the_disk_is_bounded_in_bytes_and_in_files(sandbox):
    result = await sandbox.exec("for i in 1 2 3 4 5; do head -c 4000000 /dev/zero > /tmp/$i; done; du -sm /tmp")
    assert "No space left" in result.stderr
    assert int(result.stdout.split()[0]) <= 8
    result = await sandbox.exec("rm -f /tmp/*; touch $(seq 1 2000) 2>/dev/null; ls | wc -l")
    assert 100 < int(result.stdout) < 500
    with pytest.raises(ToolError, match="No space left"):
        await sandbox.write("g", "x")


async def test_holes_in_files_do_not_fill_the_callers_memory(sandbox, tmp_path):
    result = await sandbox.exec("truncate -s 900G huge; mkdir d; truncate -s 7M d/one; truncate -s 7M d/two; echo made")
    assert result.stdout == "made\n"
    assert len(await sandbox.read("huge")) <= 8 << 20
    assert len(await sandbox.read("d/one")) == 7 << 20
    with pytest.raises(ToolError, match="more than"):
        await sandbox.get("d", tmp_path / "d")


async def test_planted_links_lead_nowhere(sandbox, tmp_path):
    outside = tmp_path / "secret"
    outside.write_text("host secret")
    planted = await sandbox.exec(
        f"ln -s {outside} file; ln -s {tmp_path} folder; ln -s /proc/self/root/etc up;"
        "ln -s ../../../../etc/passwd rel; ln -s loop loop; mkfifo fifo;"
        "mkdir tree; ln -s /etc/passwd tree/link; mkfifo tree/fifo; echo real > tree/real;"
        "mkdir closed; chmod 0 closed; ln -s tree/real good; echo done"
    )
    assert planted.stdout == "done\n"
    for path in ("file", "folder/secret", "up/passwd", "rel", "loop", "fifo", "tree/link", "tree/fifo"):
        with pytest.raises(ToolError):
            await sandbox.read(path)
    for path in ("fifo", "loop", "folder/new"):
        with pytest.raises(ToolError):
            await sandbox.write(path, "x")
    assert await sandbox.read("good") == b"real\n", "a link that stays inside is followed"
    got = await sandbox.get("tree", tmp_path / "copy")
    assert (got.files, dict(got.skipped)) == (1, {"symlink": 1, "special": 1})
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["real"]
    assert outside.read_text() == "host secret"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "secret"]


async def test_a_link_swapped_during_access_never_leads_out(sandbox, tmp_path):
    (tmp_path / "secret").write_text("host secret")
    swap = f"mkdir -p d; echo inside > d/secret; while :; do mv d e; ln -s {tmp_path} d; rm d; mv e d; done"
    swapping = asyncio.create_task(sandbox.exec(swap, timeout_s=1.5))
    seen = set()
    while not swapping.done():
        try:
            seen.add(await sandbox.read("d/secret"))
            await sandbox.write("d/planted", "x")
        except ToolError as error:
            seen.add(type(error))
        await asyncio.sleep(0)
    assert (await swapping).killed_by == "timeout"
    assert seen <= {b"inside\n", ToolError}
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


async def test_a_background_process_ends_with_its_command(sandbox):
    began = time.monotonic()
    result = await sandbox.exec("setsid sh -c 'trap \"\" TERM HUP; sleep 30; echo late > /work/late' & echo started")
    assert result.stdout == "started\n"
    assert time.monotonic() - began < 10
    assert int((await sandbox.exec("ls /proc | grep -c '^[0-9]'")).stdout) <= 6


async def test_no_process_is_left_when_exec_returns(sandbox):
    mark = f"3{os.getpid()}.5"  # seconds to sleep: tells our processes from others
    for command, deadline_s in ((f"sleep {mark} & sleep 0.1", 10), (f"sh -c 'sleep {mark}'", 0.2)):
        await sandbox.exec(command, timeout_s=deadline_s)
        assert host_processes(mark) == []


async def test_no_process_is_left_when_close_returns(host):
    mark = f"4{os.getpid()}.5"
    sandbox = BubblewrapSandbox(SandboxSpec(), host=host)
    await sandbox.exec("mkfifo started")
    running = asyncio.create_task(sandbox.exec(f"sleep {mark} & echo x > started; sleep {mark}", timeout_s=60))
    await sandbox.exec("cat started", timeout_s=50)
    await both_run(mark)
    await sandbox.close()
    assert host_processes(mark) == []
    with pytest.raises(Exception, match="closed while a command ran"):
        await running


async def test_a_time_bomb_is_gone_when_the_sandbox_is_closed(hostile_sandbox):
    """What waits for its hour, deaf to signals and in a session of its own, never sees it."""
    mark = f"7{os.getpid()}.5"
    process = await hostile_sandbox.start(
        f"trap '' HUP INT TERM; setsid sleep {mark} & echo armed; sleep {mark}", timeout_s=60
    )
    assert await process.read() == b"armed\n"
    await both_run(mark)
    await hostile_sandbox.close()
    assert host_processes(mark) == []


async def test_a_forged_report_of_failure_stays_the_programs_own(sandbox):
    """What a program prints or how it exits can never pass for a sandbox that failed, which would not count."""
    result = await sandbox.exec(
        "echo 'bwrap: execvp: failed' >&2; for i in 3 4 5 6 7 8 9; do echo x > /proc/1/fd/$i; done;"
        "kill -9 1; kill -9 $PPID; exit 125"
    )
    assert result.killed_by is None
    assert result.code in (125, 137), "with Docker its parent is a shell of ours, whose end is the command's"
    assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_neighbours_cannot_see_each_other(host):
    async with BubblewrapSandbox(SandboxSpec(), host=host) as one, BubblewrapSandbox(SandboxSpec(), host=host) as two:
        await one.exec("echo secret > /tmp/f; echo secret > /work/f; echo secret > /dev/shm/f")
        found = await two.exec("cat /tmp/* /work/* /dev/shm/*; ls /proc | grep '^[0-9]' | wc -l; ls -la /work /tmp")
        assert "secret" not in found.stdout


async def both_run(mark: str) -> None:
    """Wait until two processes show the mark: a program that has just been started may not yet."""
    async with asyncio.timeout(20):
        while len(host_processes(mark)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def host_processes(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words:
                found.append(entry.name)
    return found
