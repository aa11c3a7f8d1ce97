"""What a killed owner leaves behind is ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agar.trainer.ray.watchdog import marked

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


def until_gone(mark: bytes, *, limit_s: float) -> float:
    began = time.monotonic()
    while marked(mark):
        assert time.monotonic() - began < limit_s, f"still there: {marked(mark)}"
        time.sleep(0.1)
    return time.monotonic() - began


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


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_kill_9_of_the_owner_leaves_no_process_of_ray():
    mark = b"AGAR_RAY_WATCHDOG_TEST=1"
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    owner = subprocess.Popen(
        [sys.executable, "-P", "-c", OWNER],
        env={**inherited, "AGAR_RAY_WATCHDOG_TEST": "1"},  # not what Ray left in this process's environment
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline().strip() == "up"
        assert len(marked(mark)) > 3, "the cluster's processes inherit the environment"
        owner.kill()
        owner.wait()
        until_gone(mark, limit_s=15)
    finally:
        owner.kill()
        owner.wait()
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        if owner.stdout is not None:
            owner.stdout.close()
