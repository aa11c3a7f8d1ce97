"""Rules: which Megatron parameter holds which Hugging Face tensors, in which layout."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from agar.errors import TrainerError
from agar.trainer.megatron.mapping.layouts import Layout
from agar.trainer.megatron.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a mapping table; `{layer}` stands for the layer's number in the whole model.

    Example: `Rule("output_layer.weight", ("lm_head.weight",), VocabRows())`.
    """

    megatron: str
    hugging_face: tuple[str, ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class Bound:
    """A rule with its layer number filled in."""

    megatron: str
    hugging_face: tuple[str, ...]
    layout: Layout

    def load(
        self, read: Callable[[str], torch.Tensor], model: ModelConfig, *, tp_rank: int, tp_size: int
    ) -> torch.Tensor:
        """This rank's part of the Megatron parameter, from Hugging Face tensors that `read` gives by name."""
        whole = self.layout.merge(tuple(read(name) for name in self.hugging_face), model)
        return self.layout.shard(whole, tp_rank, tp_size)

    def export(self, shards: Sequence[torch.Tensor], model: ModelConfig) -> Iterator[tuple[str, torch.Tensor]]:
        """Hugging Face (name, tensor) pairs from all ranks' parts."""
        tensors = self.layout.split(self.layout.unshard(shards), model)
        yield from zip(self.hugging_face, tensors, strict=True)


class WeightMapping:
    """A table of rules, bound to one model."""

    def __init__(self, rules: Sequence[Rule], model: ModelConfig) -> None:
        self._bound = {b.megatron: b for b in _bind(rules, model.layers)}
        self.model = model

    def of(self, name: str) -> Bound:
        """The rule of a Megatron parameter, named with its layer's number in the whole model.

        Raises:
            TrainerError: the table has no such parameter.
        """
        try:
            return self._bound[name]
        except KeyError:
            raise TrainerError(
                f"no mapping rule for the Megatron parameter {name!r}: add it to the table of the model family"
            ) from None

    def hugging_face_names(self) -> frozenset[str]:
        """Every Hugging Face tensor that the table covers."""
        return frozenset(name for bound in self._bound.values() for name in bound.hugging_face)


def _bind(rules: Sequence[Rule], layers: int) -> Iterator[Bound]:
    for rule in rules:
        numbers: Sequence[int | None] = range(layers) if "{layer}" in rule.megatron else (None,)
        for layer in numbers:
            yield Bound(
                rule.megatron.format(layer=layer), tuple(n.format(layer=layer) for n in rule.hugging_face), rule.layout
            )


_LAYER = re.compile(r"(?<=\blayers\.)\d+")


def global_name(name: str, *, first_layer: int) -> str:
    """A stage's parameter name, with its layer counted from the start of the whole model.

    Example: `global_name("decoder.layers.0.mlp.linear_fc2.weight", first_layer=4)` names layer 4.
    """
    return _LAYER.sub(lambda match: str(int(match.group()) + first_layer), name.removeprefix("module."))
