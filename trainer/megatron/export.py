"""Weights between a stage and Hugging Face files."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

from agar.errors import ConfigError
from agar.trainer.megatron.hf_files import HuggingFaceWeights, write_shard
from agar.trainer.megatron.mapping.rules import Bound, WeightMapping, global_name
from agar.trainer.megatron.model import PolicyModel
from agar.trainer.megatron.reports import ShardReport


def stage_parameters(model: PolicyModel, mapping: WeightMapping) -> Iterator[tuple[str, torch.Tensor, Bound]]:
    """Every parameter of this stage: its name in the whole model, the tensor, its rule."""
    first = get_transformer_layer_offset(model.config)
    for local, parameter in model.named_parameters():
        name = global_name(local, first_layer=first)
        yield name, parameter, mapping.of(name)


def load_weights(model: PolicyModel, weights: HuggingFaceWeights, mapping: WeightMapping) -> None:
    """Copy Hugging Face tensors to this stage's parameters.

    Raises:
        ConfigError: a tensor is missing, or the model that is built here has no place for one.
    """
    if left := sorted(name for name in weights.names - mapping.hugging_face_names() if not _derived(name, mapping)):
        raise ConfigError(
            f"{weights.directory} has tensors that a model of type {mapping.model.model_type!r} has no place for here, "
            f"and training would leave them out: {', '.join(left[:4])}{' …' if len(left) > 4 else ''}; choose another "
            "model"
        )
    rank = parallel_state.get_tensor_model_parallel_rank()
    size = parallel_state.get_tensor_model_parallel_world_size()
    with torch.no_grad():
        for _, parameter, bound in stage_parameters(model, mapping):
            parameter.copy_(bound.load(weights.read, mapping.model, tp_rank=rank, tp_size=size))


def _derived(name: str, mapping: WeightMapping) -> bool:
    """Whether a tensor only repeats what others or the config say: a tied output layer, rotary frequencies."""
    return (name == "lm_head.weight" and mapping.model.tied) or name.endswith("rotary_emb.inv_freq")


def gather_tensors(model: PolicyModel, mapping: WeightMapping, tp_group: Any) -> dict[str, torch.Tensor] | None:
    """This stage's Hugging Face tensors on the CPU; None on ranks other than the first of the tensor parallel group.

    A tied output layer on a later stage is a copy of the first stage's embedding and is left out.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter, bound in stage_parameters(model, mapping):
        shards = [torch.empty_like(parameter) for _ in range(tp_group.size())]
        if len(shards) > 1:
            dist.all_gather(shards, parameter.detach().contiguous(), group=tp_group)
        else:
            shards = [parameter.detach()]
        copy_of_embedding = name == "output_layer.weight" and mapping.model.tied
        if tp_group.rank() == 0 and not copy_of_embedding:
            tensors.update((key, tensor.cpu().contiguous()) for key, tensor in bound.export(shards, mapping.model))
    return tensors if tp_group.rank() == 0 else None


def write_export(directory: Path, tensors: Mapping[str, torch.Tensor], *, index: int, count: int) -> ShardReport:
    """Write one stage's tensors and hash them."""
    write_shard(directory, tensors, index=index, count=count)
    return ShardReport(
        index=index,
        sizes={name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()},
        hashes={name: tensor_hash(tensor) for name, tensor in tensors.items()},
    )


def tensor_hash(tensor: torch.Tensor) -> str:
    """BLAKE2b of a CPU tensor's type, shape and bytes, in hex."""
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), digest_size=32)
    digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
