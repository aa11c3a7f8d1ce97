import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from agar.errors import EngineError
from agar.rollout.engines.process import GuardedProcess
from agar.sandbox.guardian import descendants, parents

# A tree that defends itself: ignores SIGTERM, and its grandchild left the session and lost its parent.
TREE = textwrap.dedent(
    """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper = [sys.executable, "-S", "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
               "print('up', flush=True); time.sleep(600)"]
    subprocess.Popen(sleeper)
    middle = [sys.executable, "-S", "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:], "
              "start_new_session=True)", *sleeper]
    subprocess.Popen(middle).wait()
    print("up", flush=True)
    time.sleep(600)
    """
)


def alive(pid):
    return pid in parents()


def gone(pids, within_s=10.0):
    until = time.monotonic() + within_s
    while time.monotonic() < until and any(map(alive, pids)):
        time.sleep(0.02)
    return not any(map(alive, pids))


async def start_tree(tmp_path, grace_s=0.2):
    process = GuardedProcess(
        "tree", [sys.executable, "-S", "-c", TREE], log=tmp_path / "tree.log", environment=os.environ, grace_s=grace_s
    )
    process.start()

    async def up():
        return (tmp_path / "tree.log").read_text().count("up") == 3

    await process.until_ready(up, timeout_s=20, stall_timeout_s=20)
    pids = process.pids()
    assert len(pids) == 4  # the guardian, the tree's root, its child, and the orphan that the guardian adopted
    return process, pids


async def test_stop_ends_the_whole_tree_even_where_it_ignores_sigterm(tmp_path):
    process, pids = await start_tree(tmp_path)
    await process.stop()
    assert not process.alive
    assert not any(map(alive, pids))
    await process.stop()  # idempotent


async def test_death_of_the_root_takes_the_rest_of_the_tree_along_and_keeps_its_code(tmp_path):
    process, pids = await start_tree(tmp_path)
    os.kill(pids[1], signal.SIGKILL)
    async with asyncio.timeout(20):
        assert await process.ended() == 128 + signal.SIGKILL
    assert not any(map(alive, pids))


async def test_death_of_the_guardian_itself_kills_the_root(tmp_path):
    process, pids = await start_tree(tmp_path)
    os.kill(pids[0], signal.SIGKILL)
    await process.ended()
    assert gone([pids[1]])
    for pid in pids[2:]:  # beyond what a killed guardian can promise; servers tie their own children to themselves
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("forked", [False, True])
async def test_kill_9_of_the_owner_leaves_no_process_even_where_a_fork_holds_the_pipe(tmp_path, forked):
    owner = textwrap.dedent(
        f"""
        import asyncio, os, sys, time
        from pathlib import Path
        from agar.rollout.engines.process import GuardedProcess

        async def main():
            command = [sys.executable, "-S", "-c", {TREE!r}]
            log = Path({str(tmp_path)!r}) / "log"
            process = GuardedProcess("tree", command, log=log, environment=os.environ, grace_s=0.2)
            process.start()
            async def up():
                return process.log.read_text().count("up") == 3
            await process.until_ready(up, timeout_s=20, stall_timeout_s=20)
            fork = os.fork() if {forked} else 1
            if fork == 0:
                os.closerange(0, 3)
                time.sleep(600)
            print(fork, *process.pids(), flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
        """
    )
    process = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-W", "ignore", "-c", owner], stdout=subprocess.PIPE, text=True
    )
    fork, *pids = map(int, (await asyncio.to_thread(process.stdout.readline)).split())
    assert len(pids) == 4
    process.kill()
    process.communicate()
    assert gone(pids)
    if forked:
        assert alive(fork)
        os.kill(fork, signal.SIGKILL)


async def test_failed_start_quotes_the_end_of_the_log(tmp_path):
    command = [sys.executable, "-S", "-c", "print('line one'); raise SystemExit('no weights here')"]
    process = GuardedProcess("engine-0", command, log=tmp_path / "log", environment=os.environ)
    process.start()

    async def never():
        return False

    with pytest.raises(EngineError, match=r"(?s)engine-0 ended with code 1.*line one.*no weights here"):
        await process.until_ready(never, timeout_s=20, stall_timeout_s=20)


async def test_stalled_start_is_told_from_a_slow_one(tmp_path):
    command = [sys.executable, "-S", "-c", "import time\nwhile True: print('tick', flush=True); time.sleep(0.1)"]
    slow = GuardedProcess("slow", command, log=tmp_path / "slow", environment=os.environ, grace_s=0.1)
    silent = GuardedProcess("silent", ["sleep", "60"], log=tmp_path / "silent", environment=os.environ, grace_s=0.1)

    async def never():
        return False

    for process, message in ((slow, "not ready within 2 s"), (silent, "wrote nothing for 1 s")):
        process.start()
        with pytest.raises(EngineError, match=message):
            await process.until_ready(never, timeout_s=2, stall_timeout_s=1)
        await process.stop()


def test_descendants_of_a_leaf_are_none():
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in descendants(os.getpid())
        assert descendants(child.pid) == []
    finally:
        child.kill()
        child.wait()
