"""What a container is made with."""

import json

from agar.sandbox import SandboxSpec
from agar.sandbox.docker.hardening import container, filter_json


def test_a_container_may_do_nothing_that_it_need_not():
    body = container(SandboxSpec(cpus=0.5, pids=30, memory_mib=100), image="i", labels={"a": "b"})
    host = body["HostConfig"]
    assert body["Entrypoint"][0] == "/bin/sh"
    assert (host["NetworkMode"], host["IpcMode"], host["ReadonlyRootfs"]) == ("none", "none", True)
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], ["KILL"], False)
    assert host["SecurityOpt"][0] == "no-new-privileges"
    assert host["SecurityOpt"][1].startswith("seccomp={")
    assert host["Memory"] == host["MemorySwap"] == 100 << 20
    assert (host["PidsLimit"], host["NanoCpus"]) == (32, 500_000_000)
    assert all("nosuid" in options and "nr_inodes=" in options for options in host["Tmpfs"].values())


def test_the_filter_refuses_what_is_not_listed():
    rules = json.loads(filter_json())
    assert rules["defaultAction"] == "SCMP_ACT_ERRNO"
    free = {
        name for rule in rules["syscalls"] if "args" not in rule and "ALLOW" in rule["action"] for name in rule["names"]
    }
    assert {"execve", "read", "openat", "exit_group", "fork", "futex"} <= free
    assert not free & {
        "ptrace",
        "unshare",
        "mount",
        "bpf",
        "io_uring_setup",
        "socket",
        "clone",
        "clone3",
        "keyctl",
        "setns",
    }


def test_a_runtime_and_mounts_are_passed_on(tmp_path):
    host = container(SandboxSpec(runtime="runsc", mounts={"/tools": tmp_path}), image="i", labels={})["HostConfig"]
    assert host["Runtime"] == "runsc"
    assert host["Binds"] == [f"{tmp_path}:/tools:ro"]
