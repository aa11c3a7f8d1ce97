"""One Megatron rank: a stage of the model, its shard of the optimiser, and what it does on request.

Runs in a process of its own, after `compat.install()`. All ranks get the same requests in the same order.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func

from agar.errors import TrainerError
from agar.trainer.algorithms.losses import policy_loss, sft_loss
from agar.trainer.batching.microbatch import MicroBatch
from agar.trainer.config import TrainerConfig
from agar.trainer.megatron import compat
from agar.trainer.megatron.checkpoint import load_optimizer, save_optimizer
from agar.trainer.megatron.export import gather_tensors, load_weights, write_export
from agar.trainer.megatron.hf_files import HuggingFaceWeights
from agar.trainer.megatron.logprobs import vocab_parallel_logprobs
from agar.trainer.megatron.mapping.families import mapping_for
from agar.trainer.megatron.model import PolicyModel, transformer_config
from agar.trainer.megatron.model_config import read_model_config
from agar.trainer.megatron.optimizer import StepOptimizer, wrap
from agar.trainer.megatron.reports import ShardReport, StepReport
from agar.trainer.megatron.tensors import DeviceBatch, to_device
from agar.types import Floats

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(slots=True)
class _Tally:
    """Sums over the micro-batches of a step."""

    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    gap_max: float = 0.0

    def add(self, sums: Mapping[str, torch.Tensor]) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value


class Rank:
    """A rank, once `parallel.join` has built the process groups.

    Raises:
        ConfigError: the model cannot be read, mapped or split as configured.
    """

    def __init__(self, config: TrainerConfig) -> None:
        self.config = config
        self.shape = read_model_config(config.model)
        self.mapping = mapping_for(self.shape)
        self.dtype = DTYPES[config.dtype]
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        parallel = config.parallel
        with compat.quiet():
            settings = transformer_config(
                self.shape,
                dtype=self.dtype,
                tp_size=parallel.tp_size,
                pp_size=parallel.pp_size,
                recompute=config.recompute,
            )
            self.model = PolicyModel(self.shape, settings).to(self.device, self.dtype)
            load_weights(self.model, HuggingFaceWeights(config.model), self.mapping)
            self.ddp = wrap(self.model, settings)
            self.optimizer = StepOptimizer(self.ddp, config.optimizer, config.schedule, dtype=self.dtype)
        self._tp = parallel_state.get_tensor_model_parallel_group()

    @property
    def speaks(self) -> bool:
        """Whether this rank computes the loss and reports it for its data parallel replica."""
        return bool(parallel_state.is_pipeline_last_stage()) and self._tp.rank() == 0

    def step(self, microbatches: Sequence[MicroBatch]) -> StepReport:
        """One optimiser step over this replica's micro-batches.

        The step's loss is a plain sum, while Megatron averages over micro-batches and replicas; the loss is multiplied
        by both counts, so that the average is the sum again.
        """
        start = time.perf_counter()
        tally = _Tally()
        scale = float(len(microbatches) * self.config.parallel.dp_size)

        def loss_of(batch: DeviceBatch, logits: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
            loss = self._loss(batch, logits, tally)
            return loss * scale, {}

        lr = self.optimizer.lr
        with compat.quiet():
            self.ddp.zero_grad_buffer()
            self.optimizer.zero_grad()
            self._run(microbatches, loss_of, forward_only=False)
            norm, taken = self.optimizer.step()
        return StepReport(
            sums={name: float(value) for name, value in tally.sums.items()} if self.speaks else {},
            gap_max=tally.gap_max if self.speaks else 0.0,
            grad_norm=norm,
            lr=lr,
            taken=taken,
            seconds=time.perf_counter() - start,
        )

    def logprobs(self, microbatches: Sequence[MicroBatch], *, temperature: float | None = None) -> list[Floats]:
        """Log-probs of the trained targets under the current weights.

        Args:
            microbatches: what to score.
            temperature: by which the logits are divided; None takes the configured one.

        Returns:
            Per micro-batch float32 [K], in packed order; empty unless this rank speaks.
        """
        found: list[Floats] = []

        def collect(batch: DeviceBatch, logits: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
            logprobs, _ = self._score(batch, logits, temperature)
            found.append(logprobs.cpu().numpy().astype(np.float32))
            return logprobs.sum(), {}

        with compat.quiet(), torch.no_grad():
            self._run(microbatches, collect, forward_only=True)
        return found if self.speaks else []

    def _run(self, microbatches: Sequence[MicroBatch], loss_of: Any, *, forward_only: bool) -> None:
        """Drive the pipeline schedule over the micro-batches."""

        def forward(batches: Iterator[DeviceBatch], model: Any) -> tuple[torch.Tensor, Any]:
            batch = next(batches)
            logits = _unwrap(model).score(batch.token_ids, batch.position_ids, batch.rows, batch.at)
            return logits, lambda out: loss_of(batch, out)

        schedule = get_forward_backward_func()
        schedule(
            forward_step_func=forward,
            data_iterator=(to_device(m, self.device) for m in microbatches),
            model=[self.ddp],
            num_microbatches=len(microbatches),
            seq_length=max(len(m) for m in microbatches),
            micro_batch_size=1,
            forward_only=forward_only,
        )

    def _score(
        self, batch: DeviceBatch, logits: torch.Tensor, temperature: float | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return vocab_parallel_logprobs(
            logits,
            batch.targets,
            vocab=self.shape.vocab,
            temperature=self.config.temperature if temperature is None else temperature,
            group=self._tp,
        )

    def _loss(self, batch: DeviceBatch, logits: torch.Tensor, tally: _Tally) -> torch.Tensor:
        logprobs, entropies = self._score(batch, logits)
        logprobs_T, entropies_T = batch.spread(logprobs), batch.spread(entropies)
        if self.config.loss == "sft":
            loss, sums = sft_loss(batch.inputs, logprobs_T, entropies_T)
        else:
            loss, sums = policy_loss(batch.inputs, logprobs_T, entropies_T, self.config.algorithm)
            gap = batch.inputs.masked(logprobs_T.detach() - batch.inputs.engine_logprobs)
            tally.gap_max = max(tally.gap_max, float(gap.abs().max()))
        tally.add(sums)
        return loss

    def export(self, directory: Path) -> ShardReport | None:
        """Write this stage's Hugging Face tensors to `directory`; None from ranks that write nothing."""
        with torch.no_grad():
            tensors = gather_tensors(self.model, self.mapping, self._tp)
        if tensors is None or parallel_state.get_data_parallel_rank() != 0:
            return None
        stage, stages = parallel_state.get_pipeline_model_parallel_rank(), self.config.parallel.pp_size
        return write_export(directory, tensors, index=stage, count=stages)

    def save(self, directory: Path) -> None:
        """Write this rank's optimiser and random state to `directory`."""
        save_optimizer(directory, dist.get_rank(), self.optimizer)

    def load(self, weights: Path, directory: Path) -> None:
        """Restore weights from a Hugging Face directory, then what `save` wrote.

        Raises:
            TrainerError: the checkpoint is not of this model or layout.
        """
        if read_model_config(weights) != self.shape:
            raise TrainerError(f"{weights} holds a model of another shape than {self.config.model}: load the right one")
        load_weights(self.model, HuggingFaceWeights(weights), self.mapping)
        load_optimizer(directory, dist.get_rank(), self.optimizer)


def _unwrap(model: Any) -> PolicyModel:
    inner = model
    while not isinstance(inner, PolicyModel):
        inner = inner.module
    return inner
