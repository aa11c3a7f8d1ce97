"""The process around a rank."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agar.trainer.batching.microbatch import MicroBatch
from agar.trainer.config import TrainerConfig


class RankActor:
    """A Ray actor that holds one rank.

    Settings arrive as JSON and heavy imports happen here, so that the driver needs neither torch nor Megatron.
    """

    def __init__(self, settings: str, rank: int) -> None:
        self.config = TrainerConfig.model_validate_json(settings)
        self.index = rank
        threads = self.config.placement.threads_per_rank
        # Before torch is imported: waiting threads of OpenMP would otherwise spin beside the engines.
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        if self.config.placement.gpus_per_rank == 0:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._store: Any = None
        self._rank: Any = None

    def pid(self) -> int:
        """This rank's process."""
        return os.getpid()

    def listen(self, host: str) -> int:
        """Open the store at which the ranks meet; only on rank 0.

        Returns:
            Its port.
        """
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        world = self.config.parallel.world_size
        self._store = TCPStore(host, 0, world, is_master=True, wait_for_workers=False)
        return int(self._store.port)

    def address(self) -> str:
        """The address of this rank's node."""
        import ray

        return str(ray.util.get_node_ip_address())

    def start(self, host: str, port: int) -> None:
        """Join the other ranks and build the model."""
        import torch

        from agar.trainer.megatron import compat

        torch.set_num_threads(self.config.placement.threads_per_rank)
        compat.install()
        logging.getLogger("megatron").setLevel(logging.ERROR)
        from agar.trainer.megatron.parallel import Rendezvous, join
        from agar.trainer.megatron.rank import Rank

        if host == "127.0.0.1":
            # Without this gloo resolves the host's name, which a container may not know.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        join(
            self.config.parallel,
            rank=self.index,
            meet=Rendezvous(host=host, port=port),
            store=self._store,
            seed=self.config.seed,
            timeout_s=self.config.timeouts.collective_s,
        )
        self._rank = Rank(self.config)

    def coordinates(self) -> int:
        """This rank's data parallel index."""
        from megatron.core import parallel_state

        return int(parallel_state.get_data_parallel_rank())

    def step(self, share: Sequence[MicroBatch]) -> Any:
        """One optimiser step: a `StepReport`."""
        return self._rank.step(share)

    def logprobs(self, share: Sequence[MicroBatch], temperature: float | None = None) -> Any:
        """Log-probs of the trained targets: float32 arrays."""
        return self._rank.logprobs(share, temperature=temperature)

    def export(self, directory: Path) -> Any:
        """Write Hugging Face tensors: a `ShardReport`, or None."""
        return self._rank.export(directory)

    def save(self, directory: Path) -> None:
        """Write optimiser and random state."""
        self._rank.save(directory)

    def load(self, weights: Path, directory: Path) -> None:
        """Restore weights and state."""
        self._rank.load(weights, directory)
