"""A listening socket in the network of a container, made from outside.

Run as a script, it enters the network and hands the socket to its parent: entering changes the thread that does it, and
a controller has many. Standard library only, so that it starts in milliseconds.
"""

import os
import socket
import subprocess
import sys

from agar.errors import UnsupportedPlatformError

_TIMEOUT_S = 20.0
_SCRIPT = """
import array, ctypes, os, socket, sys
pid, port, fd = map(int, sys.argv[1:])
network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(network, 0x40000000) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
with socket.create_server(("127.0.0.1", port), backlog=64) as server:
    socket.send_fds(socket.socket(fileno=fd), [b"listening"], [server.fileno()])
"""


def listen_in(pid: int, port: int) -> socket.socket:
    """Listen on 127.0.0.1 of another process's network.

    Args:
        pid: a process in that network, on this machine.
        port: the port.

    Raises:
        UnsupportedPlatformError: we may not enter it.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [sys.executable, "-I", "-S", "-c", _SCRIPT, str(pid), str(port), str(theirs.fileno())]
        done = subprocess.run(
            words, pass_fds=[theirs.fileno()], capture_output=True, text=True, timeout=_TIMEOUT_S, env={}, cwd="/"
        )
        if done.returncode != 0:
            raise UnsupportedPlatformError(
                f'the network of a container cannot be entered ({done.stderr.strip()[-200:]}): network = "gateway" '
                "with Docker needs agar to be root on the engine's machine; use bubblewrap otherwise"
            )
        _, fds, _, _ = socket.recv_fds(ours, 16, 1)
    os.set_inheritable(fds[0], False)
    return socket.socket(fileno=fds[0])
