"""Learning rate by optimiser step."""

import math

from agar.trainer.config import ScheduleConfig


def learning_rate(step: int, *, peak: float, schedule: ScheduleConfig) -> float:
    """The learning rate of one optimiser step.

    Args:
        step: steps already taken, >= 0.
        peak: learning rate after the warm-up.
        schedule: shape.

    Returns:
        During the warm-up `peak * (step + 1) / warmup_steps`, so the first step trains too; then the decay, which
        starts at `peak` and stays at `peak * final_ratio` from `total_steps` on.
    """
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    if schedule.kind == "constant" or schedule.total_steps is None:
        return peak
    done = min(1.0, (step - schedule.warmup_steps) / (schedule.total_steps - schedule.warmup_steps))
    left = 1.0 - done if schedule.kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return peak * (schedule.final_ratio + (1.0 - schedule.final_ratio) * left)
