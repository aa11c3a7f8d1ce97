"""A Python interpreter inside a sandbox that keeps its variables from one cell to the next."""

from agar.sandbox.kernel.cell import Cell
from agar.sandbox.kernel.config import KernelConfig
from agar.sandbox.kernel.kernel import Kernel

__all__ = ["Cell", "Kernel", "KernelConfig"]
