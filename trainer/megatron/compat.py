"""Megatron-core on a CPU: the only monkey-patching in agar.

`install()` must run before anything imports `megatron`. Where a CUDA device is present it does nothing at all. Each
`Patch` says why it is needed and where upstream shows it (`evidence`), so that a version bump fails a test by name
instead of failing somewhere inside a training step. Written against megatron-core 0.19.2 and torch 2.13.

The patches change this process (`torch.cuda` and `Tensor.type`), which is why only a rank's own process installs them.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

logger = logging.getLogger(__name__)

UPSTREAM = "0.19.2"
"""The megatron-core version that the patches were written against."""

_MARK = "_agar_cpu"

_USED = (
    "megatron.core.distributed",
    "megatron.core.models.gpt",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
    "megatron.core.pipeline_parallel",
    "megatron.core.tensor_parallel",
)
"""What the ranks import. Upstream warns at import about each accelerator library that a CPU machine cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One change to an upstream library.

    Attributes:
        name: how tests and logs call it.
        why: the upstream behaviour that a CPU cannot have.
        evidence: (module, text) pairs; the module's source holds the text for as long as the patch is needed.
        apply: makes the change.
    """

    name: str
    why: str
    evidence: tuple[tuple[str, str], ...]
    apply: Callable[[], None]


class _Inert:
    """Stands where a CUDA stream or event would; every method returns it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self

    def __enter__(self) -> "_Inert":
        return self

    def __exit__(self, *args: object) -> None: ...


def _stub_paged_stash() -> None:
    name = "megatron.core.transformer.moe.ops.paged_stash"
    if name not in sys.modules:
        stub = types.ModuleType(name)
        for attribute, value in {
            "GLOBAL_BLOCK_SIZE": 1024,
            "paged_stash_copy_kernel": None,
            "paged_stash_pop_kernel": None,
        }.items():
            setattr(stub, attribute, value)
        sys.modules[name] = stub


def _no_compiler() -> None:
    def compile_(function: Any = None, **kwargs: Any) -> Any:
        return function if function is not None else lambda decorated: decorated

    torch_: Any = torch
    original = torch_.compile
    torch_.compile = compile_
    try:
        # Upstream keeps what torch.compile is at this import; its own switch for that comes after the first uses.
        importlib.import_module("megatron.core.jit")
    finally:
        torch_.compile = original


def _cuda_queries() -> None:
    def current_device() -> str:
        return "cpu"

    def nothing() -> Callable[..., None]:
        return lambda *args, **kwargs: None

    def inert() -> Callable[..., _Inert]:
        return lambda *args, **kwargs: _Inert()

    setattr(current_device, _MARK, True)
    cuda: Any = torch.cuda
    cuda.current_device = current_device
    # One function object per name: torch's compiler keys its rules by function and refuses a duplicate.
    for name in ("synchronize", "empty_cache", "set_device"):
        setattr(cuda, name, nothing())
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, inert())
    cuda.Stream = type("Stream", (_Inert,), {})
    cuda.Event = type("Event", (_Inert,), {})
    cuda.stream = lambda stream: contextlib.nullcontext()
    tensor: Any = torch.Tensor
    tensor.cuda = lambda self, *args, **kwargs: self


def _cuda_rng() -> None:
    cuda: Any = torch.cuda
    cuda.manual_seed = lambda seed: torch.manual_seed(seed)
    cuda.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    random = importlib.import_module("megatron.core.tensor_parallel.random")
    random._get_cuda_rng_state = lambda device="cpu", clone=False, graph_safe=False: torch.get_rng_state()  # type: ignore[attr-defined]
    random._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: torch.set_rng_state(state)  # type: ignore[attr-defined]


def _on_cpu(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The tensor factory, with `device="cuda"` read as the CPU."""

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return factory(*args, **kwargs)

    return make


class _TorchView(types.ModuleType):
    """`torch`, seen from one module: the same names, but factories read `device="cuda"` as the CPU."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.zeros = _on_cpu(torch.zeros)
        self.tensor = _on_cpu(torch.tensor)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


_LITERAL_DEVICE = (
    "megatron.core.utils",
    "megatron.core.pipeline_parallel.schedules",
    "megatron.core.optimizer.clip_grads",
    "megatron.core.optimizer.optimizer",
)


def _literal_devices() -> None:
    # Only these modules see the proxy. A change to torch.tensor itself would corrupt other libraries' buffers.
    view = _TorchView()
    for name in _LITERAL_DEVICE:
        setattr(importlib.import_module(name), "torch", view)  # noqa: B010 - the attribute is the module's own import


def _tensor_type() -> None:
    original = torch.Tensor.type

    def type_(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return original(self, *args, **kwargs)
        return str(original(self)).replace("torch.", "torch.cuda.", 1)

    tensor: Any = torch.Tensor
    tensor.type = type_


PATCHES: tuple[Patch, ...] = (
    Patch(
        name="paged_stash",
        why="the module imports triton unconditionally; only MoE on a GPU calls it",
        evidence=(("megatron/core/transformer/moe/ops/paged_stash.py", "import triton"),),
        apply=_stub_paged_stash,
    ),
    Patch(
        name="jit_fuser",
        why="decorating fused functions, none of which runs here, imports torch's compiler: seconds per rank",
        evidence=(("megatron/core/jit.py", "jit_fuser = torch.compile"),),
        apply=_no_compiler,
    ),
    Patch(
        name="cuda_queries",
        why="buffers are made on torch.cuda.current_device(), and streams are synchronised around collectives",
        evidence=(
            ("megatron/core/distributed/param_and_grad_buffer.py", "device=torch.cuda.current_device()"),
            ("megatron/core/pipeline_parallel/p2p_communication.py", "torch.cuda.synchronize()"),
        ),
        apply=_cuda_queries,
    ),
    Patch(
        name="cuda_rng",
        why="the random state tracker forks the CUDA generator",
        evidence=(("megatron/core/tensor_parallel/random.py", "torch.cuda.random.get_rng_state(device=device)"),),
        apply=_cuda_rng,
    ),
    Patch(
        name="literal_devices",
        why='a few modules write device="cuda" instead of asking for the device',
        evidence=(
            ("megatron/core/utils.py", 'device="cuda"'),
            ("megatron/core/pipeline_parallel/schedules.py", 'torch.zeros([], dtype=torch.int, device="cuda")'),
            ("megatron/core/optimizer/clip_grads.py", "device='cuda'"),
            ("megatron/core/optimizer/optimizer.py", "device='cuda'"),
        ),
        apply=_literal_devices,
    ),
    Patch(
        name="tensor_type",
        why="the optimizers tell dtypes apart by comparing Tensor.type() with torch.cuda names",
        evidence=(
            ("megatron/core/optimizer/distrib_optimizer.py", "'torch.cuda.FloatTensor'"),
            ("megatron/core/optimizer/clip_grads.py", "'torch.cuda.FloatTensor'"),
        ),
        apply=_tensor_type,
    ),
)


def installed() -> bool:
    """Whether this process already runs on the patched CPU paths."""
    return bool(getattr(torch.cuda.current_device, _MARK, False))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave out upstream's warnings about features that are off here on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"megatron\.")
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", category=category)
        yield


def install() -> tuple[str, ...]:
    """Make megatron-core run on this process's CPU; a second call changes nothing.

    Returns:
        The names of the patches in force; empty on a machine with a CUDA device.
    """
    if torch.cuda.is_available():
        return ()
    if not installed():
        version = importlib.metadata.version("megatron-core")
        if version != UPSTREAM:
            logger.warning(
                "the CPU patches are for megatron-core %s, found %s: run the compat tests", UPSTREAM, version
            )
        with quiet():
            for patch in PATCHES:
                patch.apply()
            for name in _USED:
                importlib.import_module(name)
    return tuple(patch.name for patch in PATCHES)
