"""Megatron's distributed Adam, with clipping, skipped steps and a learning rate."""

import math
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig as MegatronOptimizerConfig
from megatron.core.optimizer import get_megatron_optimizer
from megatron.core.optimizer.clip_grads import clip_grad_by_total_norm_fp32

from agar.trainer.config import OptimizerConfig, ScheduleConfig
from agar.trainer.megatron.schedule import learning_rate


def wrap(model: torch.nn.Module, config: Any) -> DistributedDataParallel:
    """The model with gradient buffers and reduction over data parallel ranks."""
    return DistributedDataParallel(
        config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True), model
    )


class StepOptimizer:
    """One optimiser step: norm, clip, update or skip, next learning rate."""

    def __init__(
        self, ddp: DistributedDataParallel, config: OptimizerConfig, schedule: ScheduleConfig, *, dtype: torch.dtype
    ) -> None:
        self.config = config
        self.schedule = schedule
        self.steps = 0
        settings = MegatronOptimizerConfig(
            optimizer="adam",
            lr=config.lr,
            min_lr=0.0,
            weight_decay=config.weight_decay,
            adam_beta1=config.betas[0],
            adam_beta2=config.betas[1],
            adam_eps=config.eps,
            clip_grad=config.clip_grad,
            bf16=dtype == torch.bfloat16,
            params_dtype=dtype,
            use_distributed_optimizer=True,
        )
        self._optimizer = get_megatron_optimizer(settings, [ddp])
        (self._sharded,) = getattr(self._optimizer, "chained_optimizers", [self._optimizer])
        ddp.config.finalize_model_grads_func = finalize_model_grads
        ddp.config.grad_scale_func = self._optimizer.scale_loss

    @property
    def lr(self) -> float:
        """The learning rate of the coming step."""
        return learning_rate(self.steps, peak=self.config.lr, schedule=self.schedule)

    def zero_grad(self) -> None:
        """Forget gradients of the last step."""
        self._optimizer.zero_grad()

    def step(self) -> tuple[float, bool]:
        """Apply the gradients that are in the buffers.

        Returns:
            The global gradient norm before clipping, and whether the step was taken: a norm that is not finite leaves
            weights, moments and learning rate alone. Every rank sees the same norm, so all decide alike.
        """
        self._optimizer.prepare_grads()
        norm = float(self._optimizer.get_grad_norm())
        if not math.isfinite(norm):
            return norm, False
        parameters = self._sharded.get_parameters()
        if self.config.clip_grad > 0 and parameters:
            clip_grad_by_total_norm_fp32(parameters, self.config.clip_grad, norm)
        for group in self._optimizer.param_groups:
            group["lr"] = self.lr
            # Upstream applies a group's multiplier (0 for norms and biases) only through its own scheduler.
            group["weight_decay"] = self.config.weight_decay * group.get("wd_mult", 1.0)
        self._optimizer.step_with_ready_grads()
        self.steps += 1
        return norm, True

    def state(self) -> dict[str, Any]:
        """This rank's optimiser state, as tensors and plain values."""
        inner = self._sharded.optimizer
        return {
            "inner": inner.state_dict(),
            "main": [p.detach() for group in inner.param_groups for p in group["params"]],
            "steps": self.steps,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave; the model's own weights must be loaded already."""
        inner = self._sharded.optimizer
        # The torch optimiser is restored directly: upstream's path shares one step counter between parameters.
        inner.load_state_dict(state["inner"])
        for group in inner.param_groups:  # it brings the settings that were saved, and a resume may have others
            group["betas"], group["eps"] = tuple(self.config.betas), self.config.eps
        with torch.no_grad():
            mine = [p for group in inner.param_groups for p in group["params"]]
            for parameter, saved in zip(mine, state["main"], strict=True):
                parameter.copy_(saved)
        self.steps = state["steps"]

    def reload(self) -> None:
        """Take the model's weights as the new main weights."""
        self._optimizer.reload_model_params()
