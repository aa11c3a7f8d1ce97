"""Ends what is left of a local Ray cluster once its owner is gone: `python watchdog.py NAME VALUE`.

Ray's servers notice a killed driver within seconds, but helpers that wait for them retry for a minute. This process
holds the other end of a pipe; when it closes, whatever carries the cluster's mark in its environment is killed. It runs
on the standard library alone. Linux only.
"""

import os
import signal
import sys
import time
from pathlib import Path

LOOK_S = 0.25
QUIET_LOOKS = 2
DEADLINE_S = 30.0


def marked(mark: bytes) -> list[int]:
    """Processes whose environment holds the mark, this one excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended while we looked, or is not ours
    return found


def end_all(mark: bytes) -> None:
    """Kill the marked processes until none has been seen for a while: a killed one may have just started others."""
    deadline, quiet = time.monotonic() + DEADLINE_S, 0
    while quiet < QUIET_LOOKS and time.monotonic() < deadline:
        pids = marked(mark)
        quiet = 0 if pids else quiet + 1
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # gone already
        time.sleep(LOOK_S)


def main() -> None:
    """Wait for the owner to let go, then end what it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_all(f"{sys.argv[1]}={sys.argv[2]}".encode())


if __name__ == "__main__":
    main()
