"""What isolation costs: `print(1+1)` in a fresh Python, alone and in sandboxes; cells, workspaces, snapshots, leases.

    python benchmarks/sandbox.py [--times 200] [--engine SOCKET] [--swe-rex PYTHON] [--out FILE]

`--engine` adds Docker's figures, `--swe-rex` those of swe-rex's local runtime (which isolates nothing), run by the
Python of an environment that has it.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from agar.sandbox import Sandbox, SandboxSpec, create
from agar.sandbox.kernel.kernel import Kernel
from agar.sandbox.pool import SandboxPool
from agar.sandbox.remote.config import SandboxServerConfig
from agar.sandbox.remote.server import SandboxServer

PYTHON = ["/usr/bin/python3", "-I", "-S", "-c", "print(1+1)"]
WORKERS = 2
_SWE_REX = """
import asyncio, json, statistics, sys, time
from swerex.deployment.local import LocalDeployment
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest

async def main(times):
    deployment = LocalDeployment()
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=30.0))
    def took(began): return (time.perf_counter() - began) * 1e3
    session, fresh = [], []
    for _ in range(times):
        began = time.perf_counter()
        await deployment.runtime.run_in_session(BashAction(command="/usr/bin/python3 -I -S -c 'print(1+1)'"))
        session.append(took(began))
        began = time.perf_counter()
        await deployment.runtime.execute(Command(command=["/usr/bin/python3", "-I", "-S", "-c", "print(1+1)"]))
        fresh.append(took(began))
    await deployment.stop()
    print(json.dumps({"session": statistics.median(session), "execute": statistics.median(fresh)}))

asyncio.run(main(int(sys.argv[1])))
"""


async def median_ms(work: Callable[[], Awaitable[object]], times: int) -> float:
    """The median time of a piece of work."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


async def beside_bare(spec: SandboxSpec, times: int) -> tuple[float, float, float]:
    """A fresh Python without a sandbox, in an open one, and the second's time as a multiple of the first's.

    They take turns, ten at a time, so that what else the machine does falls on both; medians, in milliseconds.
    """

    async def bare() -> None:
        assert subprocess.run(PYTHON, capture_output=True, env={}, cwd="/").stdout == b"2\n"  # noqa: ASYNC221  alone

    without, within = [], []
    async with create(spec) as sandbox:
        assert (await sandbox.exec(PYTHON)).stdout == "2\n"
        for _ in range(max(1, times // 10)):
            without.append(await median_ms(bare, 10))
            within.append(await median_ms(lambda: sandbox.exec(PYTHON), 10))
    ratio = statistics.median(mine / theirs for mine, theirs in zip(within, without, strict=True))
    return statistics.median(without), statistics.median(within), ratio


def swe_rex_ms(python: str, times: int) -> dict[str, float]:
    """The same in swe-rex's local runtime, in an environment that has it."""
    words = [python, "-c", _SWE_REX, str(times)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"swe-rex ended with {done.returncode}: {done.stderr[-2000:]}")
    answer = next(line for line in done.stdout.splitlines() if line.startswith("{"))  # among its own log
    return {f"swe_rex_{name}_ms": value for name, value in json.loads(answer).items()}


async def whole_life(spec: SandboxSpec) -> None:
    """Make a sandbox, run one command, see it deleted."""
    async with create(spec) as sandbox:
        assert (await sandbox.exec(PYTHON)).stdout == "2\n"


async def warm(spec: SandboxSpec, times: int) -> float:
    """A command in a sandbox that is open."""
    async with create(spec) as sandbox:
        assert (await sandbox.exec(PYTHON)).stdout == "2\n"
        return await median_ms(lambda: sandbox.exec(PYTHON), times)


async def per_second(spec: SandboxSpec, times: int) -> float:
    """Isolated runs a second of several workers, each in a sandbox of its own."""

    async def worker() -> None:
        async with create(spec) as sandbox:
            for _ in range(times):
                await sandbox.exec(PYTHON)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    return WORKERS * times / (time.perf_counter() - began)


def plant(folder: Path) -> None:
    """A repository of 100 MB in 5,000 files."""
    for number in range(50):
        (folder / f"d{number}").mkdir()
        for name in range(100):
            (folder / f"d{number}" / f"f{name}").write_bytes(os.urandom(20_000))


async def cell_ms(spec: SandboxSpec, times: int) -> float:
    """A cell that does nearly nothing, in a kernel that is open."""
    async with create(spec) as sandbox, Kernel(sandbox) as kernel:
        await kernel.run("x = 0")
        return await median_ms(lambda: kernel.run("x += 1"), times)


async def workspaces(spec: SandboxSpec, folder: Path, times: int) -> dict[str, float]:
    """How long until a change can be made in a large workspace, and what a snapshot of a small one costs."""
    found = {}
    large = spec.model_copy(update={"workspace": folder, "disk_mib": 256, "memory_mib": 512})

    async def ready() -> None:
        sandbox = create(large)
        opened.append(sandbox)
        await sandbox.write("d0/f0", "changed")

    opened: list[Sandbox] = []
    found["workspace_100_mb_ready_ms"] = await median_ms(ready, times)
    for sandbox in opened:
        await sandbox.close()
    async with create(spec) as sandbox:
        await sandbox.exec("for i in $(seq 100); do head -c 10000 /dev/zero > $i; done")
        found["snapshot_1_mb_ms"] = await median_ms(sandbox.snapshot, times)
        snapshot = await sandbox.snapshot()
        found["restore_1_mb_ms"] = await median_ms(lambda: sandbox.restore(snapshot), times)
    async with SandboxPool(lambda: create(large), size=4, warm=2) as pool:
        taken = []
        for _ in range(times):
            while pool.state.warm < 1:  # noqa: ASYNC110  the pool's own doing
                await asyncio.sleep(0.001)
            began = time.perf_counter()
            async with pool.lease() as sandbox:
                await sandbox.write("x", "x")
                taken.append(time.perf_counter() - began)
        found["warm_lease_ms"] = statistics.median(taken) * 1e3
    return found


async def measure(times: int, engine: Path | None, swe_rex: str | None) -> dict[str, float]:
    """Every number."""
    found: dict[str, float] = {}
    spec = SandboxSpec()
    await whole_life(spec)  # the keeper starts
    found["bare_ms"], found["bubblewrap_ms"], found["bubblewrap_times_bare"] = await beside_bare(spec, times)
    found["bubblewrap_whole_life_ms"] = await median_ms(lambda: whole_life(spec), times)
    found["bubblewrap_runs_s"] = await per_second(spec, times)
    async with SandboxServer(SandboxServerConfig(port=0)) as server:
        found["remote_ms"] = await warm(SandboxSpec(backend="remote", server=server.url), times)
    found["cell_ms"] = await cell_ms(spec, times)
    with tempfile.TemporaryDirectory(prefix="agar-bench-") as place:
        plant(Path(place))
        found |= await workspaces(spec, Path(place), max(5, times // 10))
        if engine is not None:
            docker = SandboxSpec(backend="docker", engine=engine)
            await whole_life(docker)  # the image is made
            found["docker_ms"] = await warm(docker, max(5, times // 4))
            found["docker_whole_life_ms"] = await median_ms(lambda: whole_life(docker), max(5, times // 10))
            found["docker_runs_s"] = await per_second(docker, max(5, times // 4))
            found["docker_cell_ms"] = await cell_ms(docker, times)
            theirs = await workspaces(docker, Path(place), max(5, times // 40))
            found |= {f"docker_{name}": value for name, value in theirs.items()}
    if swe_rex is not None:
        found |= swe_rex_ms(swe_rex, max(5, times // 4))
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--engine", type=Path, metavar="SOCKET")
    parser.add_argument("--swe-rex", metavar="PYTHON")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = asyncio.run(measure(options.times, options.engine, options.swe_rex))
    for name, value in found.items():
        print(f"{name:<28} {value:10.2f}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
