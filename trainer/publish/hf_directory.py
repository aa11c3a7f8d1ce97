"""The parts of a Hugging Face directory beside its tensors: names, index, config, tokenizer. Free of torch."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

INDEX = "model.safetensors.index.json"

COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
"""Files that travel with the weights where the starting model has them."""
_OF_MODEL = frozenset({"config.json", "generation_config.json"})


def shard_name(index: int, count: int) -> str:
    """File name of weight shard `index` of `count`."""
    return "model.safetensors" if count == 1 else f"model-{index + 1:05d}-of-{count:05d}.safetensors"


def write_index(directory: Path, shards: Sequence[Mapping[str, int]]) -> None:
    """Write the index of a sharded export; one shard needs none.

    Args:
        directory: where the shards are.
        shards: per shard, bytes by tensor name.
    """
    if len(shards) == 1:
        return
    weight_map = {name: shard_name(i, len(shards)) for i, names in enumerate(shards) for name in names}
    total = sum(size for names in shards for size in names.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1, sort_keys=True)
    (directory / INDEX).write_text(text)


def copy_companions(model: Path, tokenizer: Path, target: Path, *, dtype: str) -> None:
    """Copy config, tokenizer and chat template to an export.

    Args:
        model: where config.json and the generation config come from.
        tokenizer: where everything else comes from.
        target: the export.
        dtype: type of the exported tensors, stated in its config.json.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in COMPANIONS:
        source = (model if name in _OF_MODEL else tokenizer) / name
        if source.is_file():
            shutil.copyfile(source, target / name)
    config = json.loads((target / "config.json").read_text())
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    if config.get(key) != dtype:
        (target / "config.json").write_text(json.dumps({**config, key: dtype}, indent=2))
