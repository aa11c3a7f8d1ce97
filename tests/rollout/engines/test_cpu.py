"""Probes of the CPU shims: each fails by the name of what a new version moved."""

import os
import subprocess
import sys

import pytest

from agar.rollout.engines.cpu import SGLANG_VERSION, SHIM_FOLDER, cpu_environment

PROBES = {
    "the pinned version is installed": "import importlib.metadata as m; assert m.version('sglang') == {version!r}",
    "sgl_kernel resolves to the stand-in": "import sgl_kernel; assert sgl_kernel.__file__.startswith({folder!r})",
    "torchvision imports beside a CPU torch": "import torchvision, torchvision.ops",
    "the request-to-token writer is imported from sgl_kernel": (
        "import pathlib, sglang; root = pathlib.Path(sglang.__file__).parent; "
        "assert any('assign_req_to_token_pool_cpu' in p.read_text(errors='ignore') for p in root.rglob('*.py'))"
    ),
    "the server's argument parser knows every flag of the CPU recipe": (
        "import argparse\n"
        "from sglang.srt.server_args import ServerArgs\n"
        "from agar_flags import FLAGS\n"
        "parser = argparse.ArgumentParser(); ServerArgs.add_cli_args(parser)\n"
        "known = set(parser._option_string_actions)\n"
        "assert FLAGS <= known, FLAGS - known"
    ),
}


@pytest.mark.sglang
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", PROBES)
def test_shims_still_fit_the_installed_engine(name, engine_python, tmp_path):
    from agar.rollout.engines.arguments import engine_command
    from agar.rollout.engines.config import EnginesConfig

    words = engine_command(EnginesConfig(), model_dir=tmp_path, port=1, version=0, index=0)
    used = {word for word in words if word.startswith("--")}
    (tmp_path / "agar_flags.py").write_text(f"FLAGS = {used!r}")
    environment = os.environ | cpu_environment()
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    code = PROBES[name].format(version=SGLANG_VERSION, folder=str(SHIM_FOLDER)) if "{" in PROBES[name] else PROBES[name]
    done = subprocess.run([engine_python, "-c", code], env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-2000:]


def test_request_table_is_written_slot_by_slot():
    torch = pytest.importorskip("torch")
    from agar.rollout.engines.shim.sgl_kernel import assign_req_to_token_pool_cpu

    table = torch.zeros((3, 6), dtype=torch.int32)
    rows, start, end = torch.tensor([2, 0]), torch.tensor([1, 0]), torch.tensor([4, 2])
    assign_req_to_token_pool_cpu(rows, table, start, end, torch.tensor([11, 12, 13, 21, 22]), 6)
    assert table.tolist() == [[21, 22, 0, 0, 0, 0], [0] * 6, [0, 11, 12, 13, 0, 0]]


def test_stand_in_answers_cpu_names_only():
    from agar.rollout.engines.shim import sgl_kernel

    with pytest.raises(NotImplementedError, match="build_tree_cpu"):
        sgl_kernel.build_tree_cpu(1)
    with pytest.raises(AttributeError):
        _ = sgl_kernel.convert_weight_packed


def test_shims_stay_out_of_this_process():
    assert str(SHIM_FOLDER) not in sys.path
    assert not any(type(finder).__name__ == "_DeclareBeforeTorchvision" for finder in sys.meta_path)
