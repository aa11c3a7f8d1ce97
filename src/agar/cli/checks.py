"""What `agar doctor` looks at. Each check answers one question about this machine, with the fix where it fails."""

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agar.errors import to_install

MAKE_ENV = "run `make env`"


class Status(StrEnum):
    """What a check came to."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    MISSING = "missing"
    """Something that training needs is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer of one check.

    Attributes:
        name: what was looked at.
        status: what it came to.
        found: what is there.
        fix: what to do about it; empty where nothing needs doing.
    """

    name: str
    status: Status
    found: str
    fix: str = ""


def python() -> Iterator[Finding]:
    """Is this Python new enough?"""
    version = sys.version.split()[0]
    good = sys.version_info >= (3, 11)  # `pip install --ignore-requires-python` gets past the metadata
    yield Finding(
        name="Python",
        status=Status.OK if good else Status.MISSING,
        found=f"{version} ({sys.executable})",
        fix="" if good else "install Python 3.11 or newer, then `make env PYTHON=python3.11`",
    )


PARTS = {
    "environments": ("agar", {"gymnasium": "gymnasium", "pydantic": "pydantic", "numpy": "numpy", "rich": "rich"}),
    "agents": ("openai", {"openai": "openai", "httpx": "httpx"}),
    "gateway": ("gateway", {name: name for name in ("starlette", "uvicorn", "aiohttp", "orjson", "tokenizers")}),
    "trainer": (
        "trainer",
        {
            "torch": "torch",
            "megatron-core": "megatron.core",
            "ray": "ray",
            "transformers": "transformers",
            "safetensors": "safetensors",
        },
    ),
    "router": ("engines", {"smg": "smg"}),
}
"""What each part needs: its extra, and distribution to module."""


def packages() -> Iterator[Finding]:
    """Can each part's packages be found?"""
    for part, (extra, wanted) in PARTS.items():
        lacking = [name for name, module in wanted.items() if not importable(module)]
        there = [f"{name} {version(name)}" for name in wanted if name not in lacking]
        yield Finding(
            name=f"packages: {part}",
            status=Status.MISSING if lacking else Status.OK,
            found=f"no {', '.join(lacking)}" if lacking else ", ".join(there),
            fix=to_install(extra) if lacking else "",
        )


def importable(module: str) -> bool:
    """Whether a module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def version(distribution: str) -> str:
    """The installed version, "?" where it has none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "?"


def engine() -> Iterator[Finding]:
    """Is there a Python that has SGLang?"""
    from agar.rollout.engines.installation import engine_python

    candidate = engine_python()
    name = "SGLang"
    if candidate is None:
        yield Finding(
            name=name,
            status=Status.MISSING,
            found="no environment with SGLang",
            fix=f"{MAKE_ENV}, or set AGAR_ENGINE_PYTHON (or engines.python in the recipe) to a Python that has it",
        )
        return
    code = "import importlib.metadata as m; print('sglang', m.version('sglang'), 'torch', m.version('torch'))"
    try:
        answer = subprocess.run([candidate, "-c", code], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(name=name, status=Status.MISSING, found=f"{candidate} does not start: {error}", fix=MAKE_ENV)
        return
    good = answer.returncode == 0
    yield Finding(
        name=name,
        status=Status.OK if good else Status.MISSING,
        found=f"{answer.stdout.strip()} ({candidate})" if good else f"{candidate} has no sglang",
        fix="" if good else f"{MAKE_ENV}, or install sglang for that Python",
    )


def sandbox() -> Iterator[Finding]:
    """Does a sandbox start here?"""
    from agar.sandbox.config import SandboxSpec
    from agar.sandbox.factory import available

    lacking = available(SandboxSpec())
    yield Finding(
        name="sandbox (bubblewrap)",
        status=Status.MISSING if lacking else Status.OK,
        found="cannot start" if lacking else "starts, with a user namespace of its own",
        fix=lacking or "",
    )


def disk() -> Iterator[Finding]:
    """Is there room for runs, and shared memory for Ray?"""
    for name, path, wanted, fix in [
        ("disk for runs", Path.cwd(), 4.0, "free some space, or set run.dir to another disk"),
        ("shared memory", Path("/dev/shm"), 1.0, "mount a larger /dev/shm (docker run --shm-size=2g)"),
    ]:
        free = shutil.disk_usage(path).free / 2**30 if path.exists() else 0.0
        good = free >= wanted
        yield Finding(
            name=name,
            status=Status.OK if good else Status.MISSING,
            found=f"{free:.1f} GiB free in {path}" + ("" if good else f", {wanted:.0f} needed"),
            fix="" if good else fix,
        )


def memory() -> Iterator[Finding]:
    """Is there memory for an engine and a trainer?"""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) / 2**20
    good = free >= 6
    yield Finding(
        name="memory",
        status=Status.OK if good else Status.NOTE,
        found=f"{free:.1f} GiB available, {os.cpu_count()} cores",
        fix="" if good else "the quickstart takes about 6 GiB: stop other programs",
    )


def ports() -> Iterator[Finding]:
    """Can a server listen on the loopback address?"""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            with socket.create_connection(listener.getsockname(), timeout=5):
                pass
    except OSError as error:
        yield Finding(
            name="loopback ports",
            status=Status.MISSING,
            found=f"cannot listen and connect on 127.0.0.1: {error}",
            fix="bring up the loopback interface (`ip link set lo up`) and allow local connections",
        )
        return
    proxied = [name for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY") if os.environ.get(name)]
    bypass = os.environ.get("no_proxy", "") + os.environ.get("NO_PROXY", "")
    caught = bool(proxied) and "127.0.0.1" not in bypass and bypass.strip() != "*"
    yield Finding(
        name="loopback ports",
        status=Status.NOTE if caught else Status.OK,
        found=f"listening works; {proxied[0]} may catch local calls" if caught else "listening works",
        fix="export no_proxy=127.0.0.1,localhost" if caught else "",
    )


def gpu() -> Iterator[Finding]:
    """Is there a GPU? None is needed."""
    devices = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    found = f"{len(devices)} NVIDIA" if devices else "none: engines and trainer run on the CPU, for small models"
    yield Finding(name="GPU", status=Status.OK if devices else Status.NOTE, found=found)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python, packages, engine, sandbox, disk, memory, ports, gpu,
)  # fmt: skip
"""Every check, in the order in which they are shown."""
