"""A policy to start from where there is none: a tiny model and its tokenizer, made for an environment on the spot."""

from pathlib import Path

WARM_UP = Path(__file__).resolve().parent / "warm_up.toml"
"""The recipe by which such a policy learns the form of an environment's turns, short of the environment's name."""
