"""Optimiser and random state of a rank, for an exact resume on the same layout."""

import logging
from pathlib import Path
from typing import Any

import torch
from megatron.core import tensor_parallel

from agar.errors import TrainerError
from agar.trainer.megatron.optimizer import StepOptimizer

logger = logging.getLogger(__name__)


def state_file(directory: Path, rank: int) -> Path:
    """Where a rank's state lies."""
    return directory / f"rank_{rank:05d}.pt"


def save_optimizer(directory: Path, rank: int, optimizer: StepOptimizer) -> None:
    """Write one rank's moments, main weights, step count and generators."""
    directory.mkdir(parents=True, exist_ok=True)
    random = {"torch": torch.get_rng_state(), "tracker": dict(tensor_parallel.get_cuda_rng_tracker().get_states())}
    torch.save({"optimizer": optimizer.state(), "random": random}, state_file(directory, rank))


def load_optimizer(directory: Path, rank: int, optimizer: StepOptimizer) -> None:
    """Restore what `save_optimizer` wrote.

    Raises:
        TrainerError: the file is missing, or belongs to another layout.
    """
    path = state_file(directory, rank)
    if not path.is_file():
        raise TrainerError(f"{path} is missing: the checkpoint was written by fewer ranks, or not to the end")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    try:
        optimizer.load_state(state["optimizer"])
    except (ValueError, RuntimeError, KeyError) as error:
        raise TrainerError(f"{path} does not fit this rank ({error}): resume with the layout that saved it") from error
    torch.set_rng_state(state["random"]["torch"])
    tensor_parallel.get_cuda_rng_tracker().set_states(state["random"]["tracker"])
