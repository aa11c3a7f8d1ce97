"""Tensor, pipeline and data parallel ranks take the same steps as a single one."""

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agar.trainer.config import OptimizerConfig, ParallelConfig, TrainerConfig
from agar.types import Source

pytestmark = [pytest.mark.megatron, pytest.mark.slow, pytest.mark.timeout(180)]

LAYOUTS = {
    "tensor": ParallelConfig(tp_size=2),
    "pipeline": ParallelConfig(pp_size=2),
    "data": ParallelConfig(dp_size=2),
}
CASES = [
    *(("qwen3", tied, layout) for tied in (False, True) for layout in LAYOUTS),
    ("qwen2", True, "tensor"),  # biases, in slices
    ("qwen2", False, "pipeline"),
]


@contextlib.contextmanager
def _ended(processes: list[subprocess.Popen]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def settings(models_by_type) -> dict[tuple[str, bool], TrainerConfig]:
    # Adam's first steps are sign-like where a gradient is nearly zero, so parallel sums could flip them: a large
    # epsilon keeps the comparison about the gradients.
    optimizer = OptimizerConfig(lr=1e-2, eps=1e-3)
    return {
        (kind, tied): TrainerConfig(model=models_by_type[kind][tied], optimizer=optimizer, tokens_per_microbatch=48)
        for kind, tied, _ in CASES
    }


@pytest.fixture(scope="module")
def parallel_runs(settings, batches, tmp_path_factory) -> Path:
    """A folder for each model and layout; two processes take them all in turn."""
    out = tmp_path_factory.mktemp("layouts")
    cases = [
        (
            f"{kind}-{tied}-{layout}",
            settings[kind, tied].model_copy(update={"parallel": LAYOUTS[layout]}),
            list(batches[tied, Source.SAMPLED].samples),
        )
        for kind, tied, layout in CASES
    ]
    (out / "cases").write_bytes(pickle.dumps(cases))
    worker = Path(__file__).with_name("layout_worker.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context((out / f"log-{rank}").open("w")) for rank in range(2)]
        processes = [
            subprocess.Popen(
                [sys.executable, str(worker), str(rank), str(out / "cases")], env=environment, stdout=log, stderr=log
            )
            for rank, log in enumerate(logs)
        ]
        stack.enter_context(_ended(processes))
        codes = [process.wait(120) for process in processes]
    assert codes == [0, 0], "\n".join((out / f"log-{rank}").read_text()[-2000:] for rank in range(2))
    return out


@pytest.fixture(scope="module")
def single_runs(settings, batches, one_rank, tmp_path_factory) -> dict[tuple[str, bool], Path]:
    from agar.trainer.batching.plan import plan_step
    from agar.trainer.megatron.rank import Rank

    outs = {}
    for (kind, tied), config in settings.items():
        rank = Rank(config)
        samples = batches[tied, Source.SAMPLED].samples
        plan = plan_step(samples, algorithm=config.algorithm, tokens_per_microbatch=config.tokens_per_microbatch)
        reports = [rank.step(plan.microbatches[0]) for _ in range(3)]
        out = outs[kind, tied] = tmp_path_factory.mktemp(f"single-{kind}-{tied}")
        rank.export(out)
        (out / "reports-0.pickle").write_bytes(pickle.dumps(reports))
    return outs


def _reports(directory: Path) -> list[list]:
    return [pickle.loads(path.read_bytes()) for path in sorted(directory.glob("reports-*.pickle"))]


def _tensors(directory: Path) -> dict:
    from safetensors.torch import load_file

    return {name: tensor for path in directory.glob("*.safetensors") for name, tensor in load_file(path).items()}


@pytest.mark.parametrize(("kind", "tied", "layout"), CASES)
def test_a_layout_takes_the_steps_of_a_single_rank(single_runs, parallel_runs, kind, tied, layout):
    import torch

    (single,) = _reports(single_runs[kind, tied])
    ranks = _reports(parallel_runs / f"{kind}-{tied}-{layout}")
    for step, expected in enumerate(single):
        parts = [reports[step] for reports in ranks]
        for name in ("loss", "tokens", "entropy_sum", "engine_kl_sum"):
            total = sum(part.sums.get(name, 0.0) for part in parts)
            assert total == pytest.approx(expected.sums[name], rel=1e-4, abs=1e-5), (name, step)
        assert [part.grad_norm for part in parts] == pytest.approx([expected.grad_norm] * 2, rel=1e-4)
    ours, theirs = _tensors(parallel_runs / f"{kind}-{tied}-{layout}"), _tensors(single_runs[kind, tied])
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
