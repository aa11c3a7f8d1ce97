"""What a rank tells the driver; free of torch, so that the driver can read it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one rank has to say about a step.

    Attributes:
        sums: the loss's sums over this rank's micro-batches; empty unless this rank is the one of its data parallel
            replica that computes the loss.
        gap_max: largest absolute log-prob difference to the engine over trained tokens, in nats.
        grad_norm: global norm before clipping.
        lr: learning rate of the step.
        taken: False where the norm was not finite and the step was skipped.
        seconds: time on this rank.
    """

    sums: Mapping[str, float]
    gap_max: float
    grad_norm: float
    lr: float
    taken: bool
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """What one pipeline stage wrote.

    Attributes:
        index: the stage.
        sizes: bytes by tensor name.
        hashes: BLAKE2b of each tensor's type, shape and bytes, in hex, by name.
    """

    index: int
    sizes: Mapping[str, int]
    hashes: Mapping[str, str]
