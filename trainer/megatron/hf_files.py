"""Tensors of Hugging Face directories: read by name, written in shards."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from agar.errors import ConfigError
from agar.trainer.publish.hf_directory import shard_name


class HuggingFaceWeights:
    """Tensors of a Hugging Face directory, read when asked for.

    Raises:
        ConfigError: the directory holds no safetensors.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file_of: dict[str, Path] = {}
        for path in sorted(directory.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                self._file_of.update(dict.fromkeys(file.keys(), path))
        if not self._file_of:
            raise ConfigError(f"{directory} holds no *.safetensors: save the starting model with safetensors")

    @property
    def names(self) -> frozenset[str]:
        """Every tensor in it."""
        return frozenset(self._file_of)

    def read(self, name: str) -> torch.Tensor:
        """The tensor `name`.

        Raises:
            ConfigError: no file has it.
        """
        path = self._file_of.get(name)
        if path is None:
            raise ConfigError(f"{self.directory} has no tensor {name!r}, which the model's config.json implies")
        with safe_open(path, "pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
        return tensor


def write_shard(directory: Path, tensors: Mapping[str, torch.Tensor], *, index: int, count: int) -> None:
    """Write one weight shard."""
    directory.mkdir(parents=True, exist_ok=True)
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(whole, directory / shard_name(index, count), metadata={"format": "pt"})
