"""Import shims for SGLang 0.5.23 on a CPU; this folder goes on the PYTHONPATH of engine processes, and nowhere else.

- `sitecustomize.py` runs at interpreter start and lets the package index's torchvision import beside a CPU torch.
- `sgl_kernel.py` stands in for SGLang's kernel package, which the package index has for GPUs only.

Both rely on private names of pinned versions (see `agar.rollout.engines.cpu`); probe tests name what breaks.
"""

if __name__ != "agar.rollout.engines.shim":  # reached through the checkout, not the package
    raise ImportError(f"import agar.rollout.engines.shim, not {__name__}")
