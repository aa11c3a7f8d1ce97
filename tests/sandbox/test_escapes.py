"""One table of programs that want out, run over every backend that isolates.

Each tries what its reason says and prints ESCAPED where it worked, and so fails the test; each must also leave the
sandbox usable. What needs a hand outside (links swapped during a copy, processes counted on the host) is in
`test_hostile.py`.
"""
# ruff: noqa: E501  hostile programs are easier to read in long lines

import os
import socket
import subprocess
import sys
from dataclasses import dataclass

import pytest

pytestmark = pytest.mark.sandbox

END = "it came to its end"
PRELUDE = """
import ctypes, errno, os, socket, struct, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return libc.syscall(number, *arguments) >= 0
def escaped(how, *what):
    print("ESCAPED", how, *what, flush=True)
def attempt(how, action):
    try:
        result = action()
    except (OSError, ValueError, MemoryError, ImportError) as error:
        return
    if result is not False:
        escaped(how, result)
def text(path):
    with open(path, "rb") as file:
        return file.read(100000).decode(errors="replace")
def finish():
    print(END, flush=True)
    os._exit(0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A hostile program.

    Attributes:
        why: what it would gain.
        code: Python, or a shell script that starts with `#!`.
        timeout_s: its deadline, in seconds.
        x86: whether it is written in system call numbers of x86-64.
        ends: whether it comes to its end, so that all of it was tried; floods and bombs do not.
    """

    why: str
    code: str
    timeout_s: float = 20.0
    x86: bool = False
    ends: bool = True


PROGRAMS = {
    # ------------------------------------------------------------------------------------------------- files
    "write_to_the_system": Program(
        why="a changed program or library would run for somebody else",
        code="""
for place in "/ /usr /usr/bin /usr/lib /etc /dev /sys /proc /run /var /opt /root /home /boot".split():
    attempt(place, lambda: open(place + "/planted", "w"))
attempt("link", lambda: os.rename("/usr/bin/env", "/usr/bin/env2"))
attempt("unlink", lambda: os.unlink("/etc/passwd"))
""",
    ),
    "overwrite_the_interpreter": Program(
        why="/proc/self/exe leads to a file of the host",
        code="""
attempt("exe", lambda: open("/proc/self/exe", "r+b"))
attempt("libc", lambda: open(next(l.split()[-1] for l in open("/proc/self/maps") if "libc" in l), "r+b"))
""",
    ),
    "read_files_of_the_host": Program(
        why="keys and passwords lie there",
        code="""
for path in "/etc/shadow /etc/sudoers /root/.bashrc /root/.ssh/id_rsa /var/log/dpkg.log /proc/kcore /proc/kmsg".split():
    attempt(path, lambda: open(path).read(10) != "" and path)
for place in "/root /home /var /boot /mnt /srv /media".split():
    attempt(place, lambda: bool(os.listdir(place)))
""",
    ),
    "walk_out_through_proc": Program(
        why="root and cwd of a process outside the namespace lead to the host's files",
        code="""
for name in os.listdir("/proc"):
    if name.isdigit():
        for kind in ("root", "cwd"):
            attempt(name, lambda: os.path.exists(f"/proc/{name}/{kind}/etc/shadow") and f"{name}/{kind}")
            attempt(name, lambda: os.path.exists(f"/proc/{name}/{kind}/root/.bashrc") and f"{name}/{kind}")
""",
    ),
    "read_the_environment_of_others": Program(
        why="keys are kept in environment variables",
        code="""
for name in ["self", *filter(str.isdigit, os.listdir("/proc"))]:
    for kind in ("environ", "cmdline"):
        attempt(name, lambda: "sk-secret" + "-4711" in text(f"/proc/{name}/{kind}") and name)
""",
    ),
    "read_the_memory_of_the_first_process": Program(
        why="what starts commands may hold secrets",
        code="""
def search():
    with open("/proc/1/mem", "rb", buffering=0) as memory:
        for line in open("/proc/1/maps"):
            first, last = (int(word, 16) for word in line.split()[0].split("-"))
            if "[v" not in line and last - first < 64 << 20:
                try:
                    memory.seek(first)
                    if b"sk-secret" + b"-4711" in memory.read(last - first): return line
                except OSError: pass
    return False
attempt("mem", search)
if "Seccomp:\\t2" not in text("/proc/1/status"): escaped("whoever writes to its memory passes no filter")
""",
    ),
    "open_files_by_handle": Program(
        why="a handle names a file of the whole file system, beyond any mount",
        x86=True,
        code="""
handle = struct.pack("II8s", 8, 1, struct.pack("II", 2, 0))
for place in ("/", "/work", "/etc/passwd", "/usr"):
    if libc.open_by_handle_at(os.open(place, os.O_RDONLY), handle, 0) >= 0: escaped(place)
""",
    ),
    "make_device_files": Program(
        why="the disk and the memory of the machine are a device number away",
        code="""
for name, major, minor in (("sda", 8, 0), ("vda", 254, 0), ("mem", 1, 1), ("kmsg", 1, 11)):
    for place in ("/work", "/tmp", "/dev/shm"):
        attempt(name, lambda: os.mknod(f"{place}/{name}", 0o60666, os.makedev(major, minor)))
        attempt(name, lambda: os.mknod(f"{place}/c{name}", 0o20666, os.makedev(major, minor)))
for name in "sda vda mem kmem port kmsg fuse kvm net/tun loop-control mapper/control".split():
    attempt(name, lambda: open("/dev/" + name, "rb"))
""",
    ),
    "set_kernel_settings": Program(
        why="core_pattern, modprobe and uevent_helper name programs that the kernel starts as root on the host",
        code="""
for path in '''/proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hostname /proc/sys/vm/overcommit_memory
    /proc/sys/fs/binfmt_misc/register /sys/kernel/uevent_helper /proc/sysrq-trigger /proc/sys/kernel/randomize_va_space
    /sys/power/state /proc/sys/net/ipv4/ip_forward'''.split():
    attempt(path, lambda: open(path, "w").write("|/bin/sh"))
""",
    ),
    "reach_the_control_groups": Program(
        why="release_agent is a program that the kernel starts on the host; a limit could be raised",
        code="""
for top in ("/sys/fs/cgroup", "/proc/self/root/sys/fs/cgroup"):
    for folder, _, names in os.walk(top):
        for name in ("release_agent", "cgroup.procs", "memory.max", "memory.limit_in_bytes", "pids.max", "devices.allow"):
            attempt(name, lambda: name in names and open(f"{folder}/{name}", "r+"))
""",
    ),
    "hard_link_to_the_system": Program(
        why="a file of the host under a name of ours would be written through",
        code="""
for source in ("/etc/passwd", "/usr/bin/env", "/proc/self/exe"):
    attempt(source, lambda: os.link(source, "/work/linked", follow_symlinks=True) and open("/work/linked", "r+b"))
    if os.path.exists("/work/linked"): attempt(source, lambda: open("/work/linked", "r+b"))
""",
    ),
    "replace_the_workspace_itself": Program(
        why="the controller would find a link where it expects the workspace",
        code="""
attempt("rename", lambda: os.rename("/work", "/tmp/work"))
attempt("rmdir", lambda: os.rmdir("/tmp"))
attempt("link", lambda: os.symlink("/etc", "/work2"))
""",
    ),
    # ------------------------------------------------------------------------------------------------- privileges
    "become_root": Program(
        why="root may do everything",
        code="""
for how in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0)):
    attempt("set", lambda: how() or os.getuid() == 0 or 0 in os.getgroups())
""",
    ),
    "use_capabilities": Program(
        why="each is a part of root's power",
        code="""
for line in open("/proc/self/status"):
    name, _, value = line.partition(":")
    if name in ("CapInh", "CapPrm", "CapEff", "CapAmb") and int(value, 16): escaped(line)
    if name == "CapBnd" and int(value, 16) & ~0x20: escaped(line)  # to kill: of the container's first process
    if name == "NoNewPrivs" and value.strip() != "1": escaped(line)
attempt("raise", lambda: libc.prctl(47, 2, 21, 0, 0) == 0)
""",
    ),
    "run_set_user_id_programs": Program(
        why="su and mount run as root for everybody",
        code="""
for program in "/usr/bin/su /usr/bin/mount /usr/bin/passwd /usr/bin/newgrp /usr/bin/sudo".split():
    if os.path.exists(program):
        child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.05)
        try:
            ids = [line for line in open(f"/proc/{child.pid}/status") if line.startswith("Uid")][0].split()[1:]
            if "0" in ids: escaped(program, ids)
        except (OSError, IndexError): pass
        child.kill(); child.wait()
""",
    ),
    "make_a_set_user_id_program": Program(
        why="whoever runs it later runs it as its owner",
        code="""
import shutil
shutil.copy("/usr/bin/id", "/work/id")
try: os.chmod("/work/id", 0o6755)
except OSError: pass
options = [line.split()[3] for line in open("/proc/self/mounts") if line.split()[1] == "/work"]
if not options or "nosuid" not in options[-1].split(","): escaped(options)
""",
    ),
    "make_namespaces": Program(
        why="in a user namespace of its own a program has every capability again",
        x86=True,
        code="""
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x10020000):
    if libc.unshare(flag) == 0: escaped(hex(flag))
    child = libc.syscall(56, flag | 17, 0, 0, 0, 0)
    if child == 0: os._exit(0)
    if child > 0: escaped("clone", hex(flag))
buffer = ctypes.create_string_buffer(struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
child = libc.syscall(435, buffer, 64)
if child == 0: os._exit(0)
if child > 0: escaped("clone3")
""",
    ),
    "enter_namespaces": Program(
        why="the first process may be in one with more in it",
        code="""
for kind in "mnt net pid user ipc uts cgroup".split():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try: fd = os.open(f"/proc/{name}/ns/{kind}", os.O_RDONLY)
        except OSError: continue
        if libc.setns(fd, 0) == 0: escaped(kind, name)
""",
    ),
    "mount_and_change_root": Program(
        why="a mount can hide, show or make writable",
        code="""
for source, target, kind, flags in ((b"none", b"/tmp", b"tmpfs", 0), (b"proc", b"/tmp", b"proc", 0), (b"/", b"/tmp", None, 4096),
                                    (None, b"/", None, 32), (None, b"/usr", None, 4096 | 32), (None, b"/proc/sys", None, 32)):
    if libc.mount(source, target, kind, flags, None) == 0: escaped("mount", target)
if libc.umount2(b"/proc", 2) == 0 or libc.umount2(b"/work", 2) == 0: escaped("umount")
os.makedirs("/work/new", exist_ok=True)
if libc.chroot(b"/work/new") == 0: escaped("chroot")
if libc.pivot_root(b"/work/new", b"/work/new") == 0: escaped("pivot_root")
""",
    ),
    "mount_with_the_new_calls": Program(
        why="the same by calls that old filters do not know",
        x86=True,
        code="""
for number, arguments in ((428, (-100, b"/usr", 1)), (430, (b"tmpfs", 0)), (442, (-100, b"/", 0, b"\\0" * 32, 32)), (429, (0, b"", -100, b"/tmp", 4))):
    if call(number, *arguments): escaped(number)
""",
    ),
    # ------------------------------------------------------------------------------------------------- kernel surface
    "trace_others": Program(
        why="whoever traces a process is that process",
        code="""
for pid in [1, os.getppid(), *map(int, filter(str.isdigit, os.listdir("/proc")))]:
    if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0: escaped("attach", pid)
    if libc.ptrace(0x4206, pid, 0, 0) == 0: escaped("seize", pid)
if libc.ptrace(0, 0, 0, 0) == 0: escaped("traceme")
""",
    ),
    "read_memory_of_others": Program(
        why="as tracing, without stopping anybody",
        x86=True,
        code="""
buffer = ctypes.create_string_buffer(8)
vector = struct.pack("PN", ctypes.addressof(buffer), 8)
for number in (310, 311):
    if libc.syscall(number, 1, vector, 1, vector, 1, 0) >= 0: escaped(number)
if call(438, 0, 0, 0): escaped("pidfd_getfd")
""",
    ),
    "load_programs_into_the_kernel": Program(
        why="eBPF, kernel modules and kexec run as the kernel",
        x86=True,
        code="""
attr = ctypes.create_string_buffer(128)
for number, arguments in ((321, (0, attr, 72)), (321, (5, attr, 72)), (175, (b"", 0, b"")), (313, (0, b"", 0)), (246, (0, 0, 0, 0)), (169, (0xFEE1DEAD, 672274793, 0, 0)), (176, (b"x", 0))):
    if call(number, *arguments): escaped(number)
""",
    ),
    "use_io_uring": Program(
        why="its operations pass no system call filter, and it has a long record of kernel faults",
        x86=True,
        code="""
if call(425, 4, ctypes.create_string_buffer(120)): escaped("setup")
if call(427, 0, 0, 0, 0): escaped("register")
""",
    ),
    "use_rare_calls": Program(
        why="userfaultfd, perf events and keyrings have helped many kernel exploits",
        x86=True,
        code="""
for name, number, arguments in (("userfaultfd", 323, (0,)), ("perf", 298, (ctypes.create_string_buffer(128), 0, -1, -1, 0)),
        ("add_key", 248, (b"user", b"a", b"b", 1, -3)), ("keyctl", 250, (0, -3, 1)), ("request_key", 249, (b"user", b"a", 0, 0)),
        ("lookup_dcookie", 212, (0, 0, 0)), ("fanotify", 300, (0, 0)), ("quotactl", 179, (0, 0, 0, 0)), ("acct", 163, (0,)),
        ("swapon", 167, (b"/tmp/x", 0)), ("settimeofday", 164, (0, 0)), ("iopl", 172, (3,)), ("modify_ldt", 154, (0, 0, 0)), ("syslog", 103, (3, attr := ctypes.create_string_buffer(64), 64))):
    if call(number, *arguments): escaped(name)
""",
    ),
    "call_numbers_from_the_future": Program(
        why="a filter that knows only names lets the next kernel's calls through",
        x86=True,
        code="""
for number in (*range(451, 470), 500, 600):
    if call(number, 0, 0, 0, 0, 0, 0) or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM): escaped(number, ctypes.get_errno())
""",
    ),
    "call_as_a_32_bit_program": Program(
        why="the numbers of 32-bit calls are others, so a filter of 64-bit numbers would let them through",
        x86=True,
        code="""
import mmap
if os.fork() == 0:
    memory = mmap.mmap(-1, 4096, prot=7)
    memory.write(bytes([0x53, 0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0x5B, 0xC3]))  # push rbx; mov eax, getpid; int 0x80; pop rbx; ret
    run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    if run() == os.getpid(): escaped("int 0x80")
    os._exit(0)
os.wait()
""",
    ),
    "call_with_the_x32_bit": Program(
        why="numbers with bit 30 are the same calls under other names",
        x86=True,
        code="""
for number in (39, 101, 272, 41):
    if os.fork() == 0:
        if call(number | 0x40000000, 40, 1, 0): escaped(number)
        os._exit(0)
    os.wait()
""",
    ),
    "open_strange_sockets": Program(
        why="vsock leads to the hypervisor, packet and raw sockets to the wire, AF_ALG to old kernel code",
        code="""
for family in (40, 38, 17, 21, 29, 31, 9, 4, 5, 3, 44, 30, 39, 45):
    for kind in (1, 2, 3, 5):
        attempt(family, lambda: socket.socket(family, kind, 0) and (family, kind))
for family in (2, 10): attempt("raw", lambda: socket.socket(family, 3, 1) and family)
if call(41, ctypes.c_ulong(40 | 1 << 32), ctypes.c_ulong(1), ctypes.c_ulong(0)): escaped("high bits")
for protocol in (2, 9, 12, 15, 16): attempt("netlink", lambda: socket.socket(16, 3, protocol) and protocol)
""",
    ),
    "type_into_the_terminal": Program(
        why="whoever started us would run what we type",
        code="""
import fcntl
for path in ("/dev/tty", "/dev/console", "/dev/tty0", "/proc/self/fd/0"):
    attempt(path, lambda: fcntl.ioctl(os.open(path, os.O_RDWR | os.O_NOCTTY), 0x5412, b"x") == 0 or path)
for fd in (0, 1, 2): attempt(fd, lambda: fcntl.ioctl(fd, 0x5412, b"x") == 0 or fd)
""",
    ),
    # ------------------------------------------------------------------------------------------------- network
    "reach_the_host_by_loopback": Program(
        why="services of the host trust their own machine",
        code="""
for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0"):
    attempt(host, lambda: socket.create_connection((host, int(os.environ["HOST_PORT"])), 2) and host)
""",
    ),
    "reach_the_world": Program(
        why="data would leave, help would come in, a cloud's metadata holds keys",
        code="""
for host, port in (("169.254.169.254", 80), ("8.8.8.8", 53), ("1.1.1.1", 443), ("10.0.0.1", 80), ("172.17.0.1", 80), ("192.168.0.1", 80), ("fe80::1", 80), ("2001:4860:4860::8888", 53)):
    attempt(host, lambda: socket.create_connection((host, port), 1) and host)
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt("udp", lambda: probe.sendto(b"x", ("8.8.8.8", 53)) > 0)
probe.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
attempt("broadcast", lambda: probe.sendto(b"x", ("255.255.255.255", 9)) > 0)
attempt("name", lambda: socket.getaddrinfo("example.com", 80) and True)
""",
    ),
    "make_a_network_of_its_own": Program(
        why="a device or route would be a way out",
        code="""
message = struct.pack("IHHII", 32, 16, 0x605, 1, 0) + struct.pack("BxHiII", 0, 0, 0, 1, 0xFFFFFFFF)
def ask():
    link = socket.socket(16, 3, 0); link.bind((0, 0)); link.send(message)
    return struct.unpack("i", link.recv(100)[16:20])[0] == 0
attempt("netlink", ask)
import fcntl
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt("address", lambda: fcntl.ioctl(probe, 0x8916, struct.pack("16sH2s4s8x", b"lo", 2, b"", bytes([10, 9, 8, 7]))) and True)
if len(os.listdir("/sys/class/net")) > 1 if os.path.isdir("/sys/class/net") else False: escaped("devices")
""",
    ),
    "find_sockets_of_the_host": Program(
        why="an engine's or a session bus's socket is a door; abstract ones need no file",
        code="""
for path in "/var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/dbus/system_bus_socket /run/systemd/private".split():
    attempt(path, lambda: socket.socket(socket.AF_UNIX).connect(path) is None)
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + os.environ["HOST_ABSTRACT"]) is None)
names = [line.split()[-1] for line in open("/proc/net/unix").read().splitlines()[1:] if line.split()[-1].startswith("@")]
if os.environ["HOST_ABSTRACT"] in str(names): escaped(names)
""",
    ),
    # ------------------------------------------------------------------------------------------------- exhaustion
    "bomb_with_forks": Program(
        ends=False, why="no process is left for anybody else", timeout_s=1.0, code="#!\nb() { b | b & }; b; sleep 20"
    ),
    "bomb_with_threads": Program(
        why="threads count as processes",
        code="""
made = []
try:
    while len(made) < 500: made.append(threading.Thread(target=time.sleep, args=(5,), daemon=True)); made[-1].start()
    escaped(len(made))
except RuntimeError: pass
finish()
""",
    ),
    "leave_a_crowd_of_zombies": Program(
        why="a dead process that nobody buries keeps its place",
        code="""
for _ in range(200):
    try:
        if os.fork() == 0:
            try:
                if os.fork() == 0: os._exit(0)
            finally: os._exit(0)
    except OSError: break
finish()
""",
    ),
    "take_all_memory": Program(
        ends=False,
        why="the machine would kill others",
        code="hog = [bytearray(1 << 20) for _ in range(400)]; escaped(len(hog))",
    ),
    "take_memory_beside_the_heap": Program(
        why="shared memory, anonymous files and mappings are memory too",
        code="""
import mmap
held = []
def shared():
    for _ in range(100): held.append(mmap.mmap(-1, 4 << 20)); held[-1].write(b"x" * (4 << 20))
def anonymous():
    fd = os.memfd_create("x")
    for _ in range(400): os.write(fd, b"x" * (1 << 20))
for name, action in (("shared", shared), ("anonymous", anonymous)):
    if os.fork() == 0:
        attempt(name, lambda: action() is None)
        os._exit(0)
    os.wait()
    held.clear()
""",
    ),
    "fill_the_disk": Program(
        why="the host's disk or memory would be full",
        code="""
total = 0
for place in ("/work", "/tmp", "/dev/shm"):
    try:
        with open(place + "/big", "wb", buffering=0) as file:
            while total < 400 << 20: total += file.write(b"x" * (1 << 20))
    except OSError: pass
if total > 40 << 20: escaped(total)
""",
    ),
    "use_up_the_files": Program(
        why="a file system without inodes is full however empty",
        code="""
made = 0
for place in ("/work", "/tmp", "/dev/shm"):
    try:
        while made < 20_000: os.mkdir(f"{place}/{made}"); made += 1
    except OSError: pass
if made > 3000: escaped(made)
""",
    ),
    "flood_the_output": Program(
        ends=False, why="the controller would hold it in memory", code="#!\nyes & yes >&2 & wait"
    ),
    "flood_with_descriptors": Program(
        why="the kernel's table of open files is shared",
        code="""
held = []
try:
    while len(held) < 100_000: held.append(os.open("/dev/null", os.O_RDONLY))
    escaped(len(held))
except OSError: pass
""",
    ),
    "dig_deep_folders": Program(
        why="whoever removes or copies them may recurse too deep or run out of path",
        code="""
for depth in range(2000):
    try: os.mkdir("d" * 200); os.chdir("d" * 200)
    except OSError: break
""",
    ),
    "dump_core": Program(
        why="a core file may be written by the kernel as root on the host, by its pattern",
        code="""
import resource
if resource.getrlimit(resource.RLIMIT_CORE) != (0, 0): escaped(resource.getrlimit(resource.RLIMIT_CORE))
attempt("raise", lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)) is None)
""",
    ),
    # ------------------------------------------------------------------------------------------------- life and results
    "kill_what_started_it": Program(
        ends=False,
        why="nobody would end what is left",
        timeout_s=2.0,
        code="#!\nkill -9 1; kill -9 -1; kill -9 $PPID; kill -9 0; exit 0",
    ),
    "stop_what_started_it": Program(
        ends=False,
        why="a stopped supervisor waits for ever",
        timeout_s=2.0,
        code="#!\nkill -STOP 1 $PPID; kill -STOP -1; kill -STOP $$; sleep 50",
    ),
    "offer_what_started_it_to_the_kernel": Program(
        ends=False,
        why="the first to die when memory is short would be what ends the others",
        code="""
for pid in ("1", str(os.getppid()), "self"):
    for value in ("1000", "-1000"):
        try: open(f"/proc/{pid}/oom_score_adj", "w").write(value if pid != "self" else str(-int(value)))
        except OSError: pass
hog = []
while True: hog.append(bytearray(1 << 20))
""",
    ),
    "starve_what_started_it": Program(
        ends=False,
        why="a supervisor that gets no processor does not kill",
        timeout_s=2.0,
        code="""
for pid in (1, os.getppid()):
    for action in (lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)), lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), lambda: os.sched_setaffinity(pid, {0})):
        try: action()
        except OSError: pass
try:
    for _ in range(20):
        if os.fork() == 0: break
except OSError: pass
while True: pass
""",
    ),
    "outlive_its_command": Program(
        why="it would see, and change, what is graded next",
        timeout_s=5.0,
        code="""
import signal
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 64):
                try: signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError): pass
            while True:
                open("/work/outlived", "w").write("ESCAPED"); time.sleep(0.02)
        os._exit(0)
time.sleep(0.2)
""",
    ),
    "forge_its_result": Program(
        why="a result told by the sandbox is believed",
        code="""
for pid in ("1", str(os.getppid())):
    try: fds = os.listdir(f"/proc/{pid}/fd")
    except OSError: continue
    for fd in fds:
        target = ""
        try: target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError: continue
        if target in [os.readlink(f"/proc/self/fd/{own}") for own in (0, 1, 2)] or target == "/dev/null": continue
        attempt("fd", lambda: os.write(os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK), b'{"code": 0}\\n') and target)
""",
    ),
    "plant_for_the_next_command": Program(
        why="a shell or Python that starts in the workspace must not pick up its files by itself",
        code="""
for name, content in (("sitecustomize.py", "print('ESCAPED site')"), ("usercustomize.py", "print('ESCAPED user')"), (".profile", "echo ESCAPED profile"),
        (".bashrc", "echo ESCAPED bashrc"), ("sh", "#!/bin/sh\\necho ESCAPED sh"), ("echo", "#!/bin/sh\\necho ESCAPED echo"), (".env", "echo ESCAPED env")):
    for place in ("/work", "/tmp"):
        with open(f"{place}/{name}", "w") as file: file.write(content)
        os.chmod(f"{place}/{name}", 0o755)
""",
    ),
}

GET_OUT_WITHOUT_A_SANDBOX = [
    "read_files_of_the_host",
    "read_the_environment_of_others",
    "make_namespaces",
    "open_strange_sockets",
    "reach_the_host_by_loopback",
    "find_sockets_of_the_host",
]
"""They only look, or touch nothing but themselves; whoever runs them, with or without rights, they find something."""


@pytest.fixture(scope="module")
def host_services():
    """What listens on the host, for programs to look for."""
    name = f"agar-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        yield {"HOST_PORT": str(server.getsockname()[1]), "HOST_ABSTRACT": name}


def to_the_end(program: Program) -> str:
    """A Python program that says so when all of it was tried."""
    return f"END = {END!r}\n{PRELUDE}{program.code}\nprint(END, flush=True)\n"


def test_the_table_is_long_enough_and_gives_reasons():
    assert len(PROGRAMS) >= 40
    assert all(program.why and program.code for program in PROGRAMS.values())


@pytest.mark.parametrize("name", GET_OUT_WITHOUT_A_SANDBOX)
def test_outside_a_sandbox_the_programs_that_harm_nothing_get_out(name, host_services):
    if PROGRAMS[name].x86 and os.uname().machine != "x86_64":
        pytest.skip("its system call numbers are x86-64's")
    known = {"AGAR_TEST_API_KEY": "sk-secret-4711", **host_services}
    words = [sys.executable, "-I", "-S", "-c", to_the_end(PROGRAMS[name])]
    done = subprocess.run(words, env=known, capture_output=True, text=True, timeout=60)
    assert "ESCAPED" in done.stdout, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
async def test_no_program_gets_out(name, hostile_sandbox, python3, host_services, monkeypatch):
    program = PROGRAMS[name]
    if program.x86 and os.uname().machine != "x86_64":
        pytest.skip("its system call numbers are x86-64's")
    monkeypatch.setenv("AGAR_TEST_API_KEY", "sk-secret-4711")
    if program.code.startswith("#!"):
        script = f"{program.code[2:]}\necho {END}"
        result = await hostile_sandbox.exec(script, env=host_services, timeout_s=program.timeout_s)
    else:
        await hostile_sandbox.write("/tmp/program.py", to_the_end(program))
        words = [python3, "-I", "-S", "/tmp/program.py"]
        result = await hostile_sandbox.exec(words, env=host_services, timeout_s=program.timeout_s)
    assert "ESCAPED" not in result.stdout, program.why
    assert (END in result.stdout) == program.ends, result.stderr
    after = await hostile_sandbox.exec(
        "rm -f outlived; sleep 0.1; cat outlived 2>/dev/null; echo alive", timeout_s=30.0
    )
    assert after.stdout == "alive\n", "the sandbox goes on, and nothing of the program does"
