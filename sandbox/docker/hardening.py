"""What a container may do: the part of the Docker interface that makes it a sandbox.

No network, no capability, no new privileges, a read-only root, commands as user 1000, a system call filter that allows
what is listed, private namespaces, and limits on memory, processes, processors, files and descriptors.
"""

import json
import signal
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agar.sandbox import seccomp
from agar.sandbox.config import SandboxSpec

# The first process of the container: it waits for a line and then kills every process but itself, until there is none.
# `kill -1` is one walk of the kernel over all of them, so no fork wins against it; the shell's own `kill` needs no
# process where there may be none to have, and its `jobs` buries the dead (dash, bash, busybox). The end of its input is
# the end of the container: that input is held open by the controller alone, and closes when the controller dies.
#
# It alone runs as root, with the one capability to kill: a process of the commands' own user could be looked into, be
# starved by its scheduling class, or be offered to the kernel as the first to die when memory is short. It runs no
# program, and reads from nobody but us.
INIT = 'while read -r word; do while kill -9 -1 2>/dev/null; do jobs >/dev/null 2>&1; done; echo "$word"; done'

_HIDDEN = "acpi asound interrupts kcore keys latency_stats sched_debug scsi sysvipc timer_list timer_stats"
_MASKED_PATHS = [*(f"/proc/{name}" for name in _HIDDEN.split()), "/sys"]
_READONLY_PATHS = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
_TOO_SMALL_MIB = 6  # Docker refuses less memory


def container(spec: SandboxSpec, *, image: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The body of `POST /containers/create`.

    Args:
        spec: what the sandbox is made of.
        image: the image's name.
        labels: whose container it is.
    """
    user = spec.user
    owner = f"uid={user},gid={user},nosuid,nodev,exec"
    quarter_mib = max(1, spec.disk_mib // 4)
    tmpfs = {
        "/work": f"size={spec.disk_mib}m,nr_inodes={spec.files},mode=700,{owner}",
        "/tmp": f"size={quarter_mib}m,nr_inodes={spec.files},mode=700,{owner}",
        "/dev/shm": f"size={quarter_mib}m,nr_inodes={spec.files},mode=700,{owner}",
    }
    memory = max(spec.memory_mib, _TOO_SMALL_MIB) << 20
    return {
        "Image": image,
        "Entrypoint": ["/bin/sh", "-c", INIT],
        "Cmd": [],
        "Env": [],
        "Labels": dict(labels),
        "User": "0:0",  # of the first process only
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": str(int(signal.SIGKILL)),
        "HostConfig": {
            "AutoRemove": True,
            "NetworkMode": "none",
            "IpcMode": "none",
            "CgroupnsMode": "private",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "CapAdd": ["KILL"],  # for the first process: a command's own set is empty, and nothing can fill it
            "SecurityOpt": ["no-new-privileges", f"seccomp={filter_json()}"],
            "Privileged": False,
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": spec.pids + 2,  # the first process and the shell around a command are ours
            **({"NanoCpus": max(10_000_000, int(spec.cpus * 1e9))} if spec.cpus is not None else {}),
            "Ulimits": [
                {"Name": name, "Soft": value, "Hard": value}
                for name, value in (("core", 0), ("nofile", 1024), ("fsize", spec.disk_mib << 20))
            ],
            "Tmpfs": tmpfs,
            "Binds": [f"{source}:{place}:ro" for place, source in spec.mounts.items()],
            "LogConfig": {"Type": "none"},
            "MaskedPaths": _MASKED_PATHS,
            "ReadonlyPaths": _READONLY_PATHS,
            "RestartPolicy": {"Name": "no"},
            **({"Runtime": spec.runtime} if spec.runtime else {}),
        },
    }


@lru_cache(maxsize=1)
def filter_json() -> str:
    """The system call filter in the engine's form: what is not listed is refused.

    It says what `seccomp.program` says for bubblewrap, as a list of what is allowed, since this form has no way to
    refuse calls that have no name yet.
    """
    masked, low_bits = "SCMP_CMP_MASKED_EQ", 0xFFFFFFFF
    rules: list[dict[str, Any]] = [{"names": seccomp.allowed_names(), "action": "SCMP_ACT_ALLOW"}]
    for family in seccomp.FAMILIES:
        arguments = [{"index": 0, "op": masked, "value": low_bits, "valueTwo": family}]
        if family == seccomp.NETLINK:
            arguments.append({"index": 2, "op": masked, "value": low_bits, "valueTwo": 0})
        rules.append({"names": ["socket", "socketpair"], "action": "SCMP_ACT_ALLOW", "args": arguments})
    no_namespace = [{"index": 0, "op": masked, "value": seccomp.NEW_NAMESPACES, "valueTwo": 0}]
    rules.append({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": no_namespace})
    absent = {"names": seccomp.absent_names(), "action": "SCMP_ACT_ERRNO", "errnoRet": 38}  # ENOSYS: do without
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "syscalls": [*rules, absent]})
