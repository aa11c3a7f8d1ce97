"""Process groups of one rank."""

import datetime
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from agar.trainer.config import ParallelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Where ranks meet.

    Attributes:
        host: address of rank 0's node.
        port: TCP port of its store.
    """

    host: str
    port: int


def join(
    parallel: ParallelConfig, *, rank: int, meet: Rendezvous, store: TCPStore | None, seed: int, timeout_s: float
) -> None:
    """Join the other ranks and build Megatron's groups.

    Args:
        parallel: sizes.
        rank: this process's global rank.
        meet: where rank 0 listens.
        store: rank 0's listening store; None on the others, who connect to it.
        seed: of the generators.
        timeout_s: deadline of every later collective.
    """
    wait = datetime.timedelta(seconds=timeout_s)
    if store is None:
        store = TCPStore(meet.host, meet.port, parallel.world_size, is_master=False, timeout=wait)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=parallel.world_size, timeout=wait)
    # Megatron's own groups have half an hour otherwise, whatever the first one has; what it takes need not be whole.
    minutes: Any = timeout_s / 60
    parallel_state.initialize_model_parallel(parallel.tp_size, parallel.pp_size, distributed_timeout_minutes=minutes)
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def leave() -> None:
    """Destroy the groups; safe to call twice."""
    if dist.is_initialized():
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
