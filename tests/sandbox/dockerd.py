"""A Docker engine of our own, for tests and measurements."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agar.sandbox import SandboxSpec, available, guardian

_START_TIMEOUT_S = 50.0


class NoEngineError(Exception):
    """There can be none here; the message says why."""


@contextmanager
def engine_of_our_own() -> Iterator[Path]:
    """Run an engine that nobody else uses, without networks, registry or firewall rules; gone afterwards.

    Yields:
        Its unix socket.

    Raises:
        NoEngineError: this machine has none, does not let it start, or it runs no container.
    """
    program = shutil.which("dockerd", path="/usr/local/bin:/usr/bin:/usr/sbin:/sbin")
    if program is None:
        raise NoEngineError("no dockerd on this machine: apt-get install --no-install-recommends docker.io")
    if os.getuid() != 0:
        raise NoEngineError("a Docker engine of our own needs root")
    folder = Path(tempfile.mkdtemp(prefix="agar-docker-"))  # a socket's path must be short
    path = folder / "docker.sock"
    words = [sys.executable, "-I", "-S", guardian.__file__, str(os.getpid()), "10", program]
    words += ["--storage-driver=overlay2", f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    words += [f"--pidfile={folder}/pid", f"--host=unix://{path}"]
    words += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none"]
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not path.exists():
            if engine.poll() is not None or time.monotonic() > deadline:
                raise NoEngineError(f"dockerd does not start here: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        problem = available(SandboxSpec(backend="docker", engine=path))
        if problem is not None:
            raise NoEngineError(f"dockerd runs no container here: {problem}")
        yield path
    finally:
        assert engine.stdin is not None
        engine.stdin.close()
        engine.wait(_START_TIMEOUT_S)
        shutil.rmtree(folder, ignore_errors=True)
