"""Rewards that come with agar: each is a function that makes what a `Criterion` scores with."""

from agar.envs.rewards.answers import exact_match, f1
from agar.envs.rewards.choice import multiple_choice
from agar.envs.rewards.code import code_tests
from agar.envs.rewards.form import length, matches
from agar.envs.rewards.isolated import isolated
from agar.envs.rewards.judge import judge
from agar.envs.rewards.maths import maths
from agar.envs.rewards.remote import remote

__all__ = [
    "code_tests",
    "exact_match",
    "f1",
    "isolated",
    "judge",
    "length",
    "matches",
    "maths",
    "multiple_choice",
    "remote",
]
