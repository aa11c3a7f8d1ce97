"""Megatron-core: model, parallelism, mapping to and from Hugging Face, checkpoints, CPU compatibility.

Nothing here is imported by default: `rank.py` runs inside a rank's own process, where `compat.install()` comes first.
"""
