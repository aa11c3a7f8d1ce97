"""What a killed owner leaves behind is ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agar.trainer.ray.watchdog import WATCH_S, Family, end_all

WATCHDOG = Path(__file__).resolve().parents[3] / "trainer" / "ray" / "watchdog.py"
OWNER = """
import asyncio
from agar.trainer.config import ParallelConfig, PlacementConfig
from agar.trainer.ray.cluster import RayCluster

async def main():
    cluster = RayCluster(PlacementConfig(), ParallelConfig())  # held: without it the pipe to the watchdog would close
    await cluster.open()
    print("up", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def until(family: Family, met: Callable[[list[int]], bool], *, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not met(members := family.look()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s; there are {[title(pid) for pid in members]}"
        time.sleep(0.1)


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:100]
    except OSError:
        return ""


def test_marked_processes_end_when_the_pipe_closes_and_others_do_not():
    mine = subprocess.Popen(["sleep", "60"], env={"MARK": "a"})
    other = subprocess.Popen(["sleep", "60"], env={"MARK": "b"})
    watchdog = subprocess.Popen([sys.executable, "-I", "-S", str(WATCHDOG), "MARK", "a"], stdin=subprocess.PIPE, env={})
    try:
        assert mine.poll() is None
        watchdog.communicate(timeout=20)
        assert mine.wait(5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (mine, other, watchdog):
            process.kill()
            process.wait()


def test_an_orphan_without_the_mark_is_still_known_by_who_started_it():
    with subprocess.Popen(
        ["sh", "-c", "env -i sh -c 'sleep 60 & echo $!; wait' & wait"], env={"MARK": "c"}, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        family = Family(b"MARK=c")
        try:
            assert {parent.pid, orphan} <= set(family.look())
            parent.kill()
            parent.wait()
            assert Family(b"MARK=c").look() == [], "the mark alone does not find it"
            assert orphan in family.look()
            end_all(family)
            assert title(orphan) == ""
        finally:
            end_all(family)
    assert family.look() == []


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_kill_9_of_the_owner_leaves_no_process_of_ray():
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    owner = subprocess.Popen(
        [sys.executable, "-P", "-c", OWNER],
        env={**inherited, "AGAR_RAY_WATCHDOG_TEST": "1"},  # not what Ray left in this process's environment
        stdout=subprocess.PIPE,
        text=True,
    )
    family = Family(b"AGAR_RAY_WATCHDOG_TEST=1")
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline().strip() == "up"
        # Those that give themselves a title are the ones that lose the mark.
        until(family, lambda pids: sum(title(pid).startswith("ray::") for pid in pids) >= 2, limit_s=60)
        time.sleep(2 * WATCH_S)
        owner.kill()
        owner.wait()
        until(family, lambda pids: not pids, limit_s=30)
    finally:
        owner.kill()
        owner.wait()
        end_all(family)
        if owner.stdout is not None:
            owner.stdout.close()
