"""A process under a guardian ends in the time that is said."""

import subprocess
from types import SimpleNamespace

import pytest

from agar.envs.isolation import guarded
from agar.envs.isolation.guarded import GuardedProcess
from agar.errors import DeadlineError


class Unending:
    """A guardian that nothing ends, and a mark that its processes keep; it tells how long it was waited for."""

    pid, returncode = 2**22 + 1, None  # no process can have this number
    stdin = SimpleNamespace(close=lambda: None)

    def __init__(self) -> None:
        self.waited_s = 0.0

    def wait(self, timeout_s: float) -> None:
        self.waited_s += timeout_s
        raise subprocess.TimeoutExpired("guardian", timeout_s)

    def clear(self, *, timeout_s: float) -> bool:
        self.waited_s += timeout_s
        return False

    def poll(self) -> None:
        """It runs."""

    def kill(self) -> None:
        """It goes on."""

    def send_signal(self, number: int) -> None:
        """It does not care."""


def test_what_does_not_end_is_said_after_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    unending = Unending()
    monkeypatch.setattr(guarded, "time", SimpleNamespace(monotonic=lambda: unending.waited_s))
    process = GuardedProcess.__new__(GuardedProcess)
    process.what, process._process, process._mark = "the process of X-v0", unending, unending
    process.channel = SimpleNamespace(shut=lambda: None, close=lambda: None)
    with pytest.raises(DeadlineError, match="the process of X-v0 did not end within 30 s"):
        process.end()
    assert unending.waited_s == 30.0
