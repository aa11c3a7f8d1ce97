from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_rank() -> Iterator[None]:
    """Process groups of a single rank in this process."""
    from agar.trainer.config import ParallelConfig
    from agar.trainer.megatron import compat

    compat.install()
    with compat.quiet():
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        from agar.trainer.megatron.parallel import Rendezvous, join, leave

        store = TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
        meet = Rendezvous(host="127.0.0.1", port=store.port)
        join(ParallelConfig(), rank=0, meet=meet, store=store, seed=1, timeout_s=30)
        yield
        leave()
