"""Settings of the trainer: model, optimiser, parallel layout, placement, publication."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from agar.config import BaseConfig
from agar.trainer.algorithms.config import AlgorithmConfig, GrpoConfig

_PROBE_TOLERANCE_NATS = {"float32": 1e-3, "bfloat16": 0.3}


class OptimizerConfig(BaseConfig):
    """AdamW with gradient clipping."""

    lr: float = Field(1e-6, ge=0, le=1)
    """Peak learning rate; 0 leaves the weights as they are, which is a control: nothing may be learnt."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the first and the second moment."""
    eps: float = Field(1e-8, gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay; norms and biases are exempt."""
    clip_grad: float = Field(1.0, ge=0)
    """Largest global gradient norm; 0 turns clipping off."""


class ScheduleConfig(BaseConfig):
    """Learning rate over optimiser steps: linear warm-up, then a decay."""

    kind: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up."""
    warmup_steps: int = Field(0, ge=0)
    """Steps of linear rise to the peak; the first step already trains, at peak / warmup_steps."""
    total_steps: int | None = Field(None, ge=1)
    """Step at which the decay ends; needed unless the kind is constant."""
    final_ratio: float = Field(0.0, ge=0, le=1)
    """Learning rate after the decay, as a share of the peak."""

    @model_validator(mode="after")
    def _decay_has_an_end(self) -> Self:
        if self.kind != "constant":
            if self.total_steps is None:
                raise ValueError(f"schedule.kind {self.kind!r} needs schedule.total_steps")
            if self.total_steps <= self.warmup_steps:
                raise ValueError("schedule.total_steps must exceed schedule.warmup_steps")
        return self


class ParallelConfig(BaseConfig):
    """How the model and the batch are split over ranks."""

    tp_size: int = Field(1, ge=1)
    """Tensor parallel ranks."""
    pp_size: int = Field(1, ge=1)
    """Pipeline stages."""
    dp_size: int = Field(1, ge=1)
    """Data parallel replicas; the optimiser state is sharded over them."""

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tp_size * self.pp_size * self.dp_size


class PlacementConfig(BaseConfig):
    """Where the ranks run."""

    address: str | None = None
    """Ray cluster to join, or none: start a small local one that dies with this process."""
    cpus_per_rank: float = Field(1.0, gt=0)
    """CPUs that a rank reserves in the cluster."""
    gpus_per_rank: float = Field(0.0, ge=0)
    """GPUs that a rank reserves; 0 trains on the CPU."""
    threads_per_rank: int = Field(1, ge=1)
    """Compute threads of a rank on a CPU."""
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """How the placement group lays the ranks over nodes."""
    object_store_mib: int = Field(128, ge=80)
    """Shared memory of a local cluster's object store."""


class TimeoutsConfig(BaseConfig):
    """Deadlines of the trainer's waits."""

    start_s: float = Field(300.0, gt=0)
    """From the first actor to a model on every rank."""
    step_s: float = Field(600.0, gt=0)
    """One optimiser step."""
    save_s: float = Field(600.0, gt=0)
    """Writing or reading a checkpoint, or an export."""
    collective_s: float = Field(600.0, gt=0)
    """One collective among ranks."""


class PublishConfig(BaseConfig):
    """How weights travel to the engines."""

    transport: Literal["disk"] = "disk"
    """`disk`: a Hugging Face directory, in shared memory where there is any."""
    directory: Path | None = None
    """Folder below which each run writes its versions, in a folder of its own that goes with it; by default /dev/shm,
    or the run directory where that is absent."""
    keep: int = Field(2, ge=1)
    """Versions that stay on disk."""
    probe_tokens: int = Field(16, ge=2)
    """Length of the probe sequence."""
    probe_tolerance: float | None = Field(None, gt=0)
    """Largest log-prob difference between trainer and engines that counts as equal, in nats; None: by the trainer's
    `dtype`, 1e-3 for float32 and 0.3 for bfloat16, in which the two differ by 0.03 on average and by up to 0.2."""


class TrainerConfig(BaseConfig):
    """The trainer of one policy."""

    model: Path
    """Hugging Face directory of the starting weights (config.json, safetensors, tokenizer)."""
    loss: Literal["policy", "sft"] = "policy"
    """`policy`: reinforcement on sampled tokens. `sft`: imitation of demonstration tokens."""
    algorithm: AlgorithmConfig = GrpoConfig()
    """Advantages, surrogate and reduction; imitation uses the reduction only."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimiser settings."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Learning-rate schedule."""
    parallel: ParallelConfig = ParallelConfig()
    """Parallel layout."""
    placement: PlacementConfig = PlacementConfig()
    """Ray placement."""
    timeouts: TimeoutsConfig = TimeoutsConfig()
    """Deadlines."""
    publish: PublishConfig = PublishConfig()
    """Publication."""
    tokens_per_microbatch: int = Field(8192, ge=1)
    """Token budget of one packed micro-batch; a longer row travels alone."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature of the engines; logits are divided by it before every log-prob."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Parameter type; bfloat16 keeps float32 main weights in the optimiser."""
    recompute: bool = False
    """Recompute activations in the backward pass to save memory."""
    seed: int = Field(1234, ge=0)
    """Seed of every rank's generators."""

    @property
    def probe_tolerance_nats(self) -> float:
        """`publish.probe_tolerance`, or that of the `dtype` where it is None."""
        return self.publish.probe_tolerance or _PROBE_TOLERANCE_NATS[self.dtype]
