"""What must hold before a run goes on from a checkpoint."""

import json
from pathlib import Path

from agar.errors import ConfigError
from agar.recipe.config import Recipe
from agar.recipe.folder import Checkpoint


def check_resumable(recipe: Recipe, checkpoint: Checkpoint) -> None:
    """Refuse, before anything has started, a checkpoint that is damaged or that is not of the recipe's tokenizers.

    Prompts are rendered with what lies in `policies.NAME.model`, and that may be a link that leads elsewhere by now;
    the weights come from the checkpoint, to which other ids would be noise.

    Raises:
        ConfigError: it is damaged; or tokenizer or chat template differ, which names both folders.
    """
    checkpoint.progress()
    checkpoint.source()
    for name, policy in recipe.policies.items():
        saved = checkpoint.path / name / "hf"
        if not saved.is_dir():  # the trainer says what is wrong with such a checkpoint
            continue
        for what, read in (("tokenizer", _tokenizer), ("chat template", _template)):
            if read(policy.model) != read(saved):
                raise ConfigError(
                    f"the {what} of policies.{name}.model, {policy.model.resolve()}, is not that of the checkpoint "
                    f"{saved}: give the model that the run began with, or begin a run from the checkpoint with "
                    f"--policies.{name}.model {saved}"
                )


def _tokenizer(folder: Path) -> bytes | None:
    path = folder / "tokenizer.json"
    return path.read_bytes() if path.is_file() else None


def _template(folder: Path) -> object:
    alone, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if alone.is_file():
        return alone.read_text()
    if not config.is_file():
        return None
    try:
        return json.loads(config.read_text()).get("chat_template")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{config} cannot be read: {error}; give a model folder that is whole") from error
