"""Side arrays: what may accompany tokens, in which layout, and how it goes from a trace into a training row.

An engine's reply carries arrays with one entry per sampled token; in a row they stand at the positions of those tokens,
and `fill` stands wherever the engine said nothing. What is computed for a row (a reference policy's log-probs) has one
entry per token of the row. `images` is a list of runs instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from agar.ledger.images import images_of
from agar.ledger.node import Node

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The declared form of a side array.

    Attributes:
        dtypes: allowed dtypes.
        ndim: number of dimensions; the first is the tokens (for `images`, the runs).
        low: smallest allowed value.
        high: largest allowed value.
        fill: stands where nothing is known.
        per_token: one entry per token; else a list of (start, length) runs of tokens.
    """

    dtypes: tuple[str, ...]
    ndim: int
    low: float = -np.inf
    high: float = np.inf
    fill: float = 0.0
    per_token: bool = True

    def problem(self, array: Array, tokens: int) -> str | None:
        """Why an array for some number of tokens is not of this layout; None where it is."""
        if array.dtype.name not in self.dtypes:
            return f"has dtype {array.dtype.name}, expected {' or '.join(self.dtypes)}"
        if array.ndim != self.ndim or (self.per_token and len(array) != tokens):
            wanted = ", ".join([str(tokens) if self.per_token else "runs", *"·" * (self.ndim - 1)])
            return f"has shape {list(array.shape)}, expected [{wanted}]"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return "holds numbers that are not finite"
        if array.size and not self.low <= float(array.min()) <= float(array.max()) <= self.high:
            return f"holds values from {array.min()} to {array.max()}, expected {self.low:g} to {self.high:g}"
        return None if self.per_token else _runs_problem(array, tokens)


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "routed_experts": Layout(dtypes=("int16", "int32"), ndim=3, low=-1, fill=-1),
        "kept_vocabulary": Layout(dtypes=("int32",), ndim=2, low=-1, fill=-1),
        "reference_logprobs": Layout(dtypes=("float32",), ndim=1, high=0),
        "teacher_logprobs": Layout(dtypes=("float32",), ndim=1, high=0),
        "loss_weights": Layout(dtypes=("float32",), ndim=1, low=0, fill=1),
        "images": Layout(dtypes=("int32",), ndim=2, low=0, per_token=False),
    }
)
"""By name. `routed_experts` [T, layers, k]: the experts that processed a token. `kept_vocabulary` [T, K]: the ids that
a filtered sampler could draw there, padded with -1. `reference_logprobs`, `teacher_logprobs` [T]: another model's
log-prob of the token. `loss_weights` [T]: factors on its loss. `images` [I, 2]: start and length of each run of
placeholders, in a reply counted from the first token of its node's `delta`."""


def node_problem(name: str, node: Node) -> str | None:
    """Why a side array of an engine's reply is not as declared; None where it is."""
    layout = LAYOUTS.get(name)
    if layout is None:
        return f"is none of the declared ones {sorted(LAYOUTS)}"
    array = node.sampled.side[name]
    return layout.problem(array, len(node.sampled) if layout.per_token else len(node.delta))


def image_problem(node: Node) -> str | None:
    """Why the images of a node's messages have no place in its ids; None where they have, or `node_problem` tells."""
    if "images" in node.sampled.side and node_problem("images", node):
        return None
    runs = node.sampled.side.get("images", np.zeros((0, 2), np.int32))
    expected = len(images_of(node.messages))
    if len(runs) != expected:
        return f"has {expected} images in its messages and {len(runs)} places for them in its ids"
    places = [node.delta[start : start + length] for start, length in runs.tolist()]
    return None if len(set(np.concatenate([[], *places]))) <= 1 else "has images in the place of text"


def carry(path: Sequence[Node], length: int) -> dict[str, Array]:
    """The side arrays of a row.

    An array that is not as declared, or of other sizes in different replies, is left out: the audit reports it (I13).

    Args:
        path: the nodes of the row.
        length: tokens in the row.
    """
    found: dict[str, Array] = {}
    for name in dict.fromkeys(name for node in path for name in node.sampled.side):
        having = [node for node in path if name in node.sampled.side]
        forms = {(node.sampled.side[name].dtype, node.sampled.side[name].shape[1:]) for node in having}
        if len(forms) == 1 and not any(node_problem(name, node) for node in having):
            found[name] = _carried(name, path, length)
    return found


def _carried(name: str, path: Sequence[Node], length: int) -> Array:
    layout, row, runs, position = LAYOUTS[name], None, [], 0
    for node in path:
        array = node.sampled.side.get(name)
        if array is not None and not layout.per_token:
            runs.append(array + np.array([position, 0], dtype=array.dtype))
        position += len(node.delta) + len(node.sampled)
        if array is not None and layout.per_token:
            if row is None:
                row = np.full((length, *array.shape[1:]), layout.fill, dtype=array.dtype)
            row[position - len(node.sampled) : position] = array
    whole: Array = np.concatenate(runs) if row is None else row
    whole.setflags(write=False)
    return whole


def _runs_problem(runs: Array, tokens: int) -> str | None:
    if runs.shape[1] != 2:
        return f"has shape {list(runs.shape)}, expected [runs, 2]"
    ends = runs.sum(axis=1)
    if (runs[:, 1] < 1).any() or (runs[1:, 0] < ends[:-1]).any() or (ends > tokens).any():
        return f"holds runs {runs.tolist()} that are empty, overlap, are out of order or pass the {tokens} tokens"
    return None
