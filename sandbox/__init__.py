"""Isolated execution of code that nobody trusts.

`create(SandboxSpec())` gives a `Sandbox`: an async context manager with a workspace at `/work`, in which `exec` runs a
command. It starts lazily, so making hundreds costs nothing. `SandboxPool` leases a bounded number of them.
`available(spec)` says what this machine lacks.
"""

from agar.sandbox.base import ExecResult, Process, Sandbox, Snapshot, Transfer
from agar.sandbox.config import GATEWAY_PORT, SandboxSpec
from agar.sandbox.factory import available, create
from agar.sandbox.pool import SandboxPool

__all__ = [
    "GATEWAY_PORT",
    "ExecResult",
    "Process",
    "Sandbox",
    "SandboxPool",
    "SandboxSpec",
    "Snapshot",
    "Transfer",
    "available",
    "create",
]

if __name__ != "agar.sandbox":  # reached through the checkout, not the package
    raise ImportError(f"import agar.sandbox, not {__name__}")
