"""Wrappers around environments: Gymnasium's own kind, that can also be awaited."""

from agar.envs.wrappers.base import Wrapper
from agar.envs.wrappers.observation import TruncateObservation
from agar.envs.wrappers.record import Record
from agar.envs.wrappers.reward import ShapeReward
from agar.envs.wrappers.tokens import TokenBudget
from agar.envs.wrappers.turns import TurnLimit
from agar.envs.wrappers.wall_clock import WallClock

__all__ = ["Record", "ShapeReward", "TokenBudget", "TruncateObservation", "TurnLimit", "WallClock", "Wrapper"]
