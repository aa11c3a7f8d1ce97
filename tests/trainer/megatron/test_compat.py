"""The CPU patches: each is still needed by the upstream that is installed, and none is in force beside a GPU."""

import importlib.metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.megatron


def test_the_patches_were_written_for_the_installed_megatron():
    from agar.trainer.megatron import compat

    assert importlib.metadata.version("megatron-core") == compat.UPSTREAM, "read every patch again, then move UPSTREAM"


def _evidence() -> list[tuple[str, str, str]]:
    from agar.trainer.megatron import compat

    return [(patch.name, path, text) for patch in compat.PATCHES for path, text in patch.evidence]


def test_upstream_still_needs_every_patch():
    root = Path(str(importlib.metadata.distribution("megatron-core").locate_file("")))
    missing = [name for name, path, text in _evidence() if text not in (root / path).read_text()]
    assert not missing, f"upstream changed under these patches: {missing}"


def test_patches_have_names_and_reasons_of_their_own():
    from agar.trainer.megatron import compat

    assert len({patch.name for patch in compat.PATCHES}) == len(compat.PATCHES)
    assert all(patch.why and patch.evidence for patch in compat.PATCHES)


def test_nothing_is_patched_where_there_is_a_gpu(monkeypatch):
    import torch

    from agar.trainer.megatron import compat

    def refuse() -> None:
        raise AssertionError("patched beside a GPU")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        compat, "PATCHES", tuple(compat.Patch(name="x", why="x", evidence=(), apply=refuse) for _ in range(2))
    )
    assert compat.install() == ()


def test_installing_twice_changes_nothing(one_rank):
    import torch

    from agar.trainer.megatron import compat

    before = (torch.Tensor.type, torch.cuda.current_device, torch.cuda.Stream)
    assert compat.install() == tuple(patch.name for patch in compat.PATCHES)
    assert before == (torch.Tensor.type, torch.cuda.current_device, torch.cuda.Stream)


def test_only_the_named_modules_see_another_torch(one_rank):
    import megatron.core.optimizer.clip_grads as patched
    import torch

    assert patched.torch.zeros(2, device="cuda").device.type == "cpu"
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(2, device="cuda")
