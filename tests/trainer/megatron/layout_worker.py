"""One of the two gloo processes of `test_layouts.py`: the same steps under each layout.

Usage: layout_worker.py RANK CASES, where CASES is a pickle of (name, config, samples) and results go beside it.
"""

import pickle
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)

from agar.trainer.megatron import compat  # noqa: E402 - before anything imports megatron

compat.install()

from megatron.core import parallel_state  # noqa: E402
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # noqa: E402

from agar.trainer.batching.plan import plan_step  # noqa: E402
from agar.trainer.config import TrainerConfig  # noqa: E402
from agar.trainer.megatron.parallel import Rendezvous, join, leave  # noqa: E402
from agar.trainer.megatron.rank import Rank  # noqa: E402

STEPS = 3


def run(rank: int, config: TrainerConfig, samples: list, out: Path, store: TCPStore | None, port: int) -> None:
    parallel = config.parallel
    meet = Rendezvous(host="127.0.0.1", port=port)
    join(parallel, rank=rank, meet=meet, store=store, seed=1, timeout_s=30)
    engine = Rank(config)
    plan = plan_step(
        samples,
        algorithm=config.algorithm,
        tokens_per_microbatch=config.tokens_per_microbatch,
        dp_size=parallel.dp_size,
    )
    share = plan.microbatches[parallel_state.get_data_parallel_rank()]
    reports = [engine.step(share) for _ in range(STEPS)]
    engine.export(out)
    (out / f"reports-{rank}.pickle").write_bytes(pickle.dumps(reports))
    leave()


def listen(rank: int, file: Path) -> tuple[TCPStore | None, int]:
    if rank == 0:
        store = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
        file.with_suffix(".new").write_text(str(store.port))
        file.with_suffix(".new").rename(file)
        return store, store.port
    deadline = time.monotonic() + 30
    while not file.is_file():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 did not write {file} in 30 s")
        time.sleep(0.05)
    return None, int(file.read_text())


def main(rank: int, file: Path) -> None:
    for name, config, samples in pickle.loads(file.read_bytes()):
        out = file.parent / name
        out.mkdir(exist_ok=True)
        store, port = listen(rank, out / "port")
        run(rank, config, samples, out, store, port)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
