"""Ends what is left of a local Ray cluster once its owner is gone: `python watchdog.py NAME VALUE`.

Ray's servers notice a killed driver within seconds, but helpers that wait for them retry for a minute. This process
holds the other end of a pipe; when it closes, the cluster's processes are killed. They are those that carry the mark
`NAME=VALUE` in their environment, and all that such a process was ever seen to start: a process that gives itself a
title, as Ray's agents and actors do, writes over its environment and loses the mark, and an orphan loses its parent.
Hence the watch from the beginning. It runs on the standard library alone. Linux only.
"""

import os
import select
import signal
import sys
import time

WATCH_S = 1.0
LOOK_S = 0.25
QUIET_LOOKS = 2
DEADLINE_S = 30.0


class Family:
    """Processes that carry a mark, and whatever they start.

    Args:
        mark: `NAME=VALUE` in the environment of the first ones.
    """

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._started: dict[int, str] = {}
        """When each member started, in clock ticks: a process id alone may have been given to another since."""

    def look(self) -> list[int]:
        """The members that live, new ones included; this process is never one."""
        seen: dict[int, tuple[int, str]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid() and (found := _stat(int(name))) is not None:
                seen[int(name)] = found
        members = {pid: started for pid, started in self._started.items() if pid in seen and seen[pid][1] == started}
        strangers = {pid: parent for pid, (parent, _) in seen.items() if pid not in members}
        found_new = {pid for pid in strangers if self._mark in _environment(pid)}
        while found_new:
            members |= {pid: seen[pid][1] for pid in found_new}
            found_new = {pid for pid, parent in strangers.items() if parent in members and pid not in members}
        self._started = members
        return sorted(members)


def _stat(pid: int) -> tuple[int, str] | None:
    """Parent and start of a process that lives; None for one that has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()  # proc(5): the third field, the state, comes first
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[1]), fields[19])


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []  # it ended while we looked, or is not ours


def end_all(family: Family) -> None:
    """Kill its processes until none has been seen for a while: a killed one may have just started others."""
    deadline, quiet = time.monotonic() + DEADLINE_S, 0
    while quiet < QUIET_LOOKS and time.monotonic() < deadline:
        pids = family.look()
        quiet = 0 if pids else quiet + 1
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # gone already
        time.sleep(LOOK_S)


def main() -> None:
    """Watch until the owner lets go, then end what it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    family = Family(f"{sys.argv[1]}={sys.argv[2]}".encode())
    while not select.select([sys.stdin], [], [], WATCH_S)[0]:
        family.look()
    end_all(family)


if __name__ == "__main__":
    main()
