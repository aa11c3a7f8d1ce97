"""Run one command and leave nothing of it behind: `python guardian.py OWNER_PID GRACE_S COMMAND...`.

A server such as SGLang is a tree of processes that outlives a killed parent, and so is an environment that forks. The
guardian is its root instead: it adopts every orphan of the tree (PR_SET_CHILD_SUBREAPER), and kills all of it as soon
as

- its standard input closes (the owner let go of it, or died, by `kill -9` too),
- the owner's process ends (a forked copy of the owner may still hold the pipe open),
- it gets SIGTERM, or
- the command ends by itself; the guardian then ends with the command's exit code.

It runs on the standard library alone, so that it starts in milliseconds and shares no fate with what it guards.
Linux only.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_DEADLINE_S = 20.0


def parents() -> dict[int, int]:
    """The parent of every process that can be seen, by process id."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    found[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it ended while we looked
    return found


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, zombies included, nearest first."""
    children: dict[int, list[int]] = {}
    for child, parent in parents().items():
        children.setdefault(parent, []).append(child)
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with_guardian() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _reap(child: int) -> int | None:
    """Collect ended processes; gives the wait status of `child` when it is among them."""
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = ended


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _clear(child: int, grace_s: float) -> None:
    """End the whole tree: politely, then for good."""
    _signal_all(descendants(os.getpid()), signal.SIGTERM)
    polite_until = time.monotonic() + grace_s
    give_up_at = polite_until + _KILL_DEADLINE_S
    while time.monotonic() < give_up_at:
        _reap(child)
        left = descendants(os.getpid())
        if not left:
            return
        if time.monotonic() >= polite_until:
            _signal_all(left, signal.SIGKILL)
        time.sleep(0.02)


def _watch(owner: int, child: int) -> int | None:
    """Wait for a reason to end; gives the child's wait status where the child ended first."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    poll.register(wake_read, select.POLLIN)
    try:
        owner_fd = os.pidfd_open(owner)
    except ProcessLookupError:
        return None
    poll.register(owner_fd, select.POLLIN)
    while not asked and os.getppid() == owner:
        status = _reap(child)
        if status is not None:
            return status
        for fd, _ in poll.poll():
            if fd == wake_read:
                os.read(wake_read, 4096)
            elif fd == owner_fd or not os.read(0, 4096):
                return None
    return None


def main(argv: list[str]) -> int:
    """Guard one command; returns its exit code, 143 where it was ended."""
    owner, grace_s, command = int(argv[0]), float(argv[1]), argv[2:]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to handle
    # Its own session: a signal to the terminal's group must not reach half of the tree.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=False,  # what the owner passed to the guardian is meant for the command
        preexec_fn=_die_with_guardian,
    )
    os.closerange(3, 1024)  # the guardian's own copies, or nobody would see the command close its end
    status = _watch(owner, process.pid)
    _clear(process.pid, grace_s)
    process.returncode = 143 if status is None else os.waitstatus_to_exitcode(status)  # reaped here, not by subprocess
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
