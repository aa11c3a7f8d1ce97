"""Isolated execution of code that nobody trusts.

`create(SandboxSpec())` gives a `Sandbox`: an async context manager with a workspace at `/work`, in which `exec` runs a
command. It starts lazily, so making hundreds costs nothing. `available(spec)` says what this machine lacks.
"""

from agar.sandbox.base import ExecResult, Sandbox, Transfer
from agar.sandbox.config import GATEWAY_PORT, SandboxSpec
from agar.sandbox.factory import available, create

__all__ = ["GATEWAY_PORT", "ExecResult", "Sandbox", "SandboxSpec", "Transfer", "available", "create"]

if __name__ != "agar.sandbox":  # reached through the checkout, not the package
    raise ImportError(f"import agar.sandbox, not {__name__}")
