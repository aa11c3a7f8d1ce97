"""A mark that a process hands down to all that it starts, by which they are found again without their parents."""

import contextlib
import os
import signal
import time
import uuid


class Mark:
    """A variable of the environment, with a name of its own, in a process and in everything that it starts.

    A process that loses its parents keeps it, in a session of its own too. One that is started with another environment
    (`env={}`) does not have it. Linux only.
    """

    def __init__(self) -> None:
        """Draw a name that nothing else has."""
        self.name = f"AGAR_KEPT_{uuid.uuid4().hex}"

    def carriers(self) -> list[int]:
        """The processes that carry it and have not ended, by id."""
        wanted, found = f"{self.name}=".encode(), []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:  # not ended, not another's
                if any(variable.startswith(wanted) for variable in file.read().split(b"\0")):  # not in a value
                    found.append(int(name))
        return found

    def clear(self, *, timeout_s: float) -> bool:
        """Kill all that carry it, and those that they start meanwhile; False where some are left at the deadline."""
        until = time.monotonic() + timeout_s
        while left := self.carriers():
            if time.monotonic() >= until:
                return False
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return True
