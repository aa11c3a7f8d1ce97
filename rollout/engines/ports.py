"""Ports for servers that bind them long after they were chosen."""

import random
import socket
from pathlib import Path

from agar.rollout.engines.arguments import HOST

_LOWEST = 15_000
_HIGHEST = 65_535
_TRIES = 200
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that nobody listened on a moment ago, and that the system gives to nobody by itself.

    An engine takes up to a minute before it binds its port. Meanwhile every outgoing connection of every process on the
    machine takes a port of the ephemeral range, so one of those would sooner or later be gone.

    Where the system gives all of them away, or none of those tried is free, it is one of the ephemeral range after all.
    """
    low, high = ephemeral()
    rest = [*range(_LOWEST, min(low, _HIGHEST)), *range(max(high + 1, _LOWEST), _HIGHEST)]
    draw = random.SystemRandom()  # so that two processes that choose at once seldom choose the same
    for _ in range(_TRIES if rest else 0):
        port: int = draw.choice(rest)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    with socket.socket() as probe:  # the range is everything, or what lies outside is taken
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def ephemeral() -> tuple[int, int]:
    """The first and the last port that the system gives to whoever names none."""
    try:
        low, high = _EPHEMERAL.read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999  # Linux's own default
    return int(low), int(high)
