"""Algorithms as pure functions: advantages, losses, corrections, reductions. No device, no distributed state.

`config` (settings), `advantages`, `reductions` and `metrics` need numpy; `losses`, `kl`, `corrections` and `inputs`
import torch and are imported by name where they are used.
"""
