"""Plans over control group trees of both versions, laid out as files: this machine has only one of them."""

import os

import pytest

from agar.sandbox import SandboxSpec
from agar.sandbox.limits import Controllers, find_controllers, plan_limits, soft_rlimits

SPEC = SandboxSpec(memory_mib=100, pids=20, cpus=1.5, disk_mib=10, files=99)


def layout(tmp_path, mounts, own):
    """A /proc/self with the given mounts (kind, directory, root, options) and memberships."""
    proc = tmp_path / "proc"
    proc.mkdir()
    lines = [
        f"{30 + index} 25 0:{index} {root} {directory} rw,relatime - {kind} {kind} rw,{options}\n"
        for index, (kind, directory, root, options) in enumerate(mounts)
    ]
    (proc / "mountinfo").write_text("25 1 254:0 / / rw - ext4 /dev/vda rw\n" + "".join(lines))
    (proc / "cgroup").write_text(own)
    return proc


class Kernel:
    """Makes a new directory in a watched tree look like a new control group, as the kernel does."""

    def __init__(self, monkeypatch, files):
        real, remove = os.mkdir, os.rmdir

        def mkdir(path, *arguments, **options):
            real(path, *arguments, **options)
            for name in next((names for top, names in files.items() if str(path).startswith(str(top))), ()):
                open(os.path.join(path, name), "w").close()

        def rmdir(path, *arguments, **options):
            for name in os.listdir(path):
                os.unlink(os.path.join(path, name))
            remove(path, *arguments, **options)

        monkeypatch.setattr(os, "mkdir", mkdir)
        monkeypatch.setattr(os, "rmdir", rmdir)


def test_version_1_uses_each_controllers_own_tree(tmp_path, monkeypatch):
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    (memory / "job").mkdir(parents=True)
    pids.mkdir()
    files = {memory: ["memory.limit_in_bytes", "cgroup.procs"], pids: ["pids.max", "cgroup.procs"]}
    proc = layout(
        tmp_path, [("cgroup", memory, "/", "memory"), ("cgroup", pids, "/", "pids")], "4:memory:/job\n8:pids:/\n"
    )
    Kernel(monkeypatch, files)
    controllers = find_controllers(proc=proc)
    assert controllers.parents == {"memory": (1, memory / "job"), "pids": (1, pids)}
    plan = plan_limits(SPEC, controllers)
    assert plan.cgroups[str(memory / "job")]["memory.limit_in_bytes"] == "104857600"
    assert plan.cgroups[str(pids)] == {"pids.max": "20"}
    assert plan.processes_inside is None
    assert "RLIMIT_AS" not in plan.rlimits
    assert "no writable" in plan.in_force["cpu"]
    assert list(memory.iterdir()) == [memory / "job"], "the probes are gone"


def test_version_2_puts_all_into_one_group(tmp_path, monkeypatch):
    top = tmp_path / "unified"
    (top / "user").mkdir(parents=True)
    proc = layout(tmp_path, [("cgroup2", top, "/", "nsdelegate")], "0::/user\n")
    Kernel(monkeypatch, {top: ["memory.max", "pids.max", "cpu.max", "cgroup.procs"]})
    plan = plan_limits(SPEC, find_controllers(proc=proc))
    assert plan.cgroups == {
        str(top / "user"): {
            "memory.max": "104857600",
            "?memory.swap.max": "0",
            "pids.max": "20",
            "cpu.max": "150000 100000",
        }
    }
    assert plan.in_force["memory"] == "100 MiB in all (cgroup v2)"


def test_a_group_that_hands_on_no_controllers_is_passed_over(tmp_path, monkeypatch):
    top = tmp_path / "unified"
    (top / "user").mkdir(parents=True)
    proc = layout(tmp_path, [("cgroup2", top, "/", "")], "0::/user\n")
    Kernel(monkeypatch, {top / "user": ["cgroup.procs"], top: ["memory.max", "cgroup.procs"]})
    assert find_controllers(proc=proc).parents == {"memory": (2, top)}


def test_a_container_sees_its_part_of_the_tree(tmp_path, monkeypatch):
    top = tmp_path / "memory"
    (top / "inner").mkdir(parents=True)
    proc = layout(tmp_path, [("cgroup", top, "/docker/abc", "memory")], "4:memory:/docker/abc/inner\n")
    Kernel(monkeypatch, {top: ["memory.limit_in_bytes", "cgroup.procs"]})
    assert find_controllers(proc=proc).parents == {"memory": (1, top / "inner")}


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_tree_that_is_not_ours_is_not_used(tmp_path):
    proc = layout(tmp_path, [("cgroup2", "/proc", "/", "")], "0::/\n")
    assert find_controllers(proc=proc).parents == {}


def test_without_control_groups_resource_limits_take_over_and_it_is_said():
    plan = plan_limits(SPEC, Controllers(parents={}))
    assert plan.cgroups == {}
    assert plan.rlimits == {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": 10 << 20,
        "RLIMIT_NOFILE": 1024,
        "RLIMIT_AS": 100 << 20,
    }
    assert plan.processes_inside == 20
    assert "per process (RLIMIT_AS)" in plan.in_force["memory"]
    assert "RLIMIT_NPROC" in plan.in_force["pids"]
    assert plan.in_force["disk"] == "tmpfs of 10 MiB and 99 files"


def test_resource_limits_never_exceed_what_this_process_has(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 500))
    assert soft_rlimits({"RLIMIT_NOFILE": 1024, "RLIMIT_CORE": 0}) == [
        (resource.RLIMIT_NOFILE, 500),
        (resource.RLIMIT_CORE, 0),
    ]
