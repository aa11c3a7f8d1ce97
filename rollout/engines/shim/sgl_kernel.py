"""Stand-in for SGLang's kernel package on a CPU without it.

Why: with `SGLANG_USE_CPU_ENGINE=1`, SGLang 0.5.23 imports some `*_cpu` functions when it loads, most of them for
speculative decoding and key-value copies that a plain server never runs. `convert_weight_packed` is missing on
purpose: its absence tells SGLang that there are no AMX kernels.
"""

from collections.abc import Callable
from typing import Any, NoReturn


def assign_req_to_token_pool_cpu(
    req_pool_indices: Any, req_to_token: Any, start_offset: Any, end_offset: Any, out_cache_loc: Any, pool_len: int
) -> None:
    """Write freshly allocated cache slots into the rows of the request table: the one function that does run.

    Args:
        req_pool_indices: integer tensor [requests], row of each request.
        req_to_token: integer tensor [rows, pool_len], changed in place.
        start_offset: integer tensor [requests], first column to write.
        end_offset: integer tensor [requests], column after the last.
        out_cache_loc: integer tensor [sum of end - start], the slots in request order.
        pool_len: columns of the table; the caller's kernel needs it, this one does not.
    """
    taken = 0
    for row, start, end in zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True):
        slots = out_cache_loc[taken : taken + end - start]
        req_to_token[row, start:end] = slots.to(req_to_token.dtype)
        taken += end - start


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if not name.endswith("_cpu"):
        raise AttributeError(f"the CPU stand-in for sgl_kernel has no {name!r}")

    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} was called on a CPU without SGLang's kernels")

    missing.__name__ = name
    return missing
