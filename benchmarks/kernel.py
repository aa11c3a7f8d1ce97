"""What a cell of the Python kernel costs beside its own work, in milliseconds.

    python benchmarks/kernel.py [--cells 2000] [--out FILE]

A cell that does nothing, one that prints and shows a value, one of a kernel behind HTTP, a fresh interpreter (without a
sandbox) to compare with; how long a kernel takes to start, and to take in 100 MB of output.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from agar.sandbox import SandboxSpec, create
from agar.sandbox.kernel.config import KernelConfig
from agar.sandbox.kernel.kernel import Kernel
from agar.tool_servers.client import ToolClient
from agar.tool_servers.config import ServerConfig
from agar.tool_servers.python import Python
from agar.tool_servers.server import ToolServer

_FLOOD = "for _ in range(100): print('x' * 1_048_575)"


async def median_ms(work: Callable[[], Awaitable[object]], times: int) -> float:
    """The median time of a piece of work."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


async def measure(cells: int) -> dict[str, float]:
    """Every number."""
    found: dict[str, float] = {}
    starts = []
    for _ in range(10):
        async with create(SandboxSpec()) as sandbox:
            await sandbox.exec("true")  # the sandbox itself is not what is measured
            began = time.perf_counter()
            async with Kernel(sandbox) as kernel:
                await kernel.run("")
                starts.append(time.perf_counter() - began)
    found["start_ms"] = statistics.median(starts) * 1e3
    async with create(SandboxSpec()) as sandbox, Kernel(sandbox, KernelConfig(cell_timeout_s=60)) as kernel:
        await kernel.run("x = 0")
        found["cell_ms"] = await median_ms(lambda: kernel.run("x += 1"), cells)
        found["printing_cell_ms"] = await median_ms(lambda: kernel.run("print('hello')\nx"), cells)
        began = time.perf_counter()
        flood = await kernel.run(_FLOOD)
        assert flood.cut_bytes > 100e6, flood
        found["flood_100_mb_s"] = time.perf_counter() - began
    async with ToolServer(Python(), ServerConfig(port=0)) as server, ToolClient(server.url).session() as tools:
        arguments = {"code": "x = 1"}
        await tools.call("python", arguments, timeout_s=30)
        found["served_cell_ms"] = await median_ms(lambda: tools.call("python", arguments, timeout_s=30), cells // 4)
    found["fresh_interpreter_ms"] = await median_ms(
        lambda: asyncio.to_thread(subprocess.run, [sys.executable, "-I", "-S", "-c", "x = 1"], check=True), 20
    )
    return found


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = asyncio.run(measure(options.cells))
    for name, value in found.items():
        print(f"{name:<24}{value:10.3f}")
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
