"""Which limits this machine can enforce, and how.

Control groups bound a whole process tree and are used where this process may make one; version 1 mounts each
controller by itself, version 2 all in one tree, and a hybrid machine has both. Where a controller is missing or not
writable, resource limits take its place, which bound each process and not their sum. `LimitPlan.in_force` says which.
"""

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agar.sandbox.config import SandboxSpec

_CPU_PERIOD_US = 100_000
PREFIX = "agar-"
"""Every control group and run directory of ours starts so; the rest of the name says whose it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Directories below which this process may make control groups, by controller (`memory`, `pids`, `cpu`).

    Attributes:
        parents: controller to (version, directory).
    """

    parents: Mapping[str, tuple[int, Path]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPlan:
    """The limits of one sandbox, as the keeper applies them.

    Attributes:
        cgroups: parent directory to the files to write in the new group.
        rlimits: `RLIMIT_` name to value, set before anything of the sandbox runs.
        processes_inside: RLIMIT_NPROC, to be set inside the new user namespace, where the count starts at zero.
        in_force: what bounds `memory`, `pids`, `cpus`, `disk`, in words.
    """

    cgroups: Mapping[str, Mapping[str, str]]
    rlimits: Mapping[str, int]
    processes_inside: int | None
    in_force: Mapping[str, str]


def find_controllers(*, proc: Path = Path("/proc/self")) -> Controllers:
    """Look for writable control groups: this process's own, then the top of the hierarchy.

    A candidate counts once a group was really made in it and removed again: a mount can be read-only, and version 2
    gives a new group only the controllers that its parent hands on.

    Args:
        proc: where `mountinfo` and `cgroup` are read.
    """
    own: dict[str, str] = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else ["unified"]:
            own[name] = path
    parents: dict[str, tuple[int, Path]] = {}
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split(" ")[3:5]
        if kind == "cgroup":
            for name in {"memory", "pids", "cpu"} & set(options.split(",")):
                _offer(parents, name, 1, _candidates(Path(mount), root, own.get(name, "/")))
        elif kind == "cgroup2":
            for name in ("memory", "pids", "cpu"):
                _offer(parents, name, 2, _candidates(Path(mount), root, own.get("unified", "/")))
    return Controllers(parents=parents)


def plan_limits(spec: SandboxSpec, controllers: Controllers) -> LimitPlan:
    """Turn a spec into control group files and resource limits.

    Args:
        spec: how much the sandbox may use.
        controllers: what `find_controllers` found.
    """
    memory = spec.memory_mib << 20
    rlimits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": spec.disk_mib << 20, "RLIMIT_NOFILE": 1024}
    in_force = {"disk": f"tmpfs of {spec.disk_mib} MiB and {spec.files} files"}
    cgroups: dict[str, dict[str, str]] = {}

    def use(name: str, files: Mapping[int, Mapping[str, str]], text: str) -> bool:
        if name not in controllers.parents:
            return False
        version, parent = controllers.parents[name]
        cgroups.setdefault(str(parent), {}).update(files[version])
        in_force[name] = f"{text} (cgroup v{version})"
        return True

    if not use(
        "memory",
        {
            1: {"memory.limit_in_bytes": str(memory), "?memory.memsw.limit_in_bytes": str(memory)},
            2: {"memory.max": str(memory), "?memory.swap.max": "0"},
        },
        f"{spec.memory_mib} MiB in all",
    ):
        rlimits["RLIMIT_AS"] = memory
        in_force["memory"] = f"{spec.memory_mib} MiB of address space per process (RLIMIT_AS)"
    processes_inside = None
    if not use("pids", {1: {"pids.max": str(spec.pids)}, 2: {"pids.max": str(spec.pids)}}, f"{spec.pids} in all"):
        processes_inside = spec.pids
        in_force["pids"] = f"{spec.pids} in one command (RLIMIT_NPROC in its user namespace)"
    if spec.cpus is not None:
        quota = max(1000, int(spec.cpus * _CPU_PERIOD_US))
        version1 = {"cpu.cfs_period_us": str(_CPU_PERIOD_US), "cpu.cfs_quota_us": str(quota)}
        if not use("cpu", {1: version1, 2: {"cpu.max": f"{quota} {_CPU_PERIOD_US}"}}, f"{spec.cpus:g} processors"):
            in_force["cpu"] = "not limited but by the deadline: no writable cpu control group"
    return LimitPlan(cgroups=cgroups, rlimits=rlimits, processes_inside=processes_inside, in_force=in_force)


def soft_rlimits(rlimits: Mapping[str, int]) -> list[tuple[int, int]]:
    """Resolve `RLIMIT_` names, never above what this process itself may have."""
    resolved = []
    for name, value in rlimits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        resolved.append((number, value if hard == resource.RLIM_INFINITY else min(value, hard)))
    return resolved


def _candidates(mount: Path, root: str, own: str) -> list[Path]:
    inside = os.path.relpath(own, root) if own.startswith(root) else "."  # a container sees part of the tree
    return [mount / inside, mount] if inside != "." else [mount]


def _offer(parents: dict[str, tuple[int, Path]], name: str, version: int, candidates: list[Path]) -> None:
    if name in parents:
        return
    probe_file = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}.get(
        name, ("cpu.cfs_quota_us", "cpu.max")
    )[version - 1]
    for parent in candidates:
        probe = parent / f"{PREFIX}probe-{os.getpid()}-{name}"
        with suppress(OSError):
            probe.mkdir()
            try:
                usable = os.access(probe / probe_file, os.W_OK) and os.access(probe / "cgroup.procs", os.W_OK)
            finally:
                probe.rmdir()
            if usable:
                parents[name] = (version, parent)
                return
