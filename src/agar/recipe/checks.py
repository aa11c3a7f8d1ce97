"""Checks of what a recipe names: model folders, environments, tasks. Each is made or read, as the run would."""

import json
from collections.abc import Mapping
from typing import Any

from agar.errors import AgarError, ConfigError
from agar.rollout.config import EvaluationConfig, TasksConfig
from agar.rollout.sources.config import DemonstrationsConfig
from agar.trainer.config import TrainerConfig
from agar.trainer.megatron.model_config import model_to_train


def check_tasks(place: str, stream: TasksConfig | EvaluationConfig | DemonstrationsConfig) -> None:
    """Refuse a table without tasks, or whose curriculum is none.

    Args:
        place: the table, for the message.
        stream: its settings.

    Raises:
        ConfigError: says which field, and why.
        MissingExtraError: the tasks take a package that is not installed.
    """
    from agar.envs.tasks import TaskStream
    from agar.rollout.streams import curriculum_of, tasks_of

    path = getattr(stream, "path", None)
    where, named = ("split", stream.split) if path is None else ("path", path)
    try:
        tasks = tasks_of(stream)
    except ConfigError as error:
        raise ConfigError(f"{place}.{where}: {error}") from error
    if not isinstance(tasks, TaskStream) and len(tasks) == 0:
        raise ConfigError(f"{place}.{where} = {named!r}: there is no task in it: name another {where}")
    if isinstance(stream, TasksConfig):
        try:
            curriculum_of(stream)
        except ConfigError as error:
            raise ConfigError(f"{place}.curriculum: {error}") from error


def check_env(place: str, env: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse an environment that is unknown, or cannot be made.

    Args:
        place: the table that names it, for the message.
        env: its id.
        kwargs: arguments of its constructor.

    Raises:
        ConfigError: says which of them, and why.
        AgarError: what the constructor raised on purpose: something is missing on this machine.
    """
    from agar.envs.isolation.env import ProcessEnv
    from agar.envs.registry import make, spec  # gymnasium is slow to import; a recipe without tasks does without

    try:
        spec(env)
    except ConfigError as error:
        raise ConfigError(f"{place}.env: {error}") from error
    try:
        made = make(env, **kwargs)
        if isinstance(made, ProcessEnv):  # made in its process only when it is used
            made.start()
    except ConfigError as error:
        raise ConfigError(f"{place}.kwargs: {error}") from error
    except AgarError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{place}.kwargs = {dict(kwargs)}: {env} cannot be made with them: {type(error).__name__}: {error}"
        ) from error
    made.close()


def check_model(place: str, policy: TrainerConfig, *, trained: bool) -> None:
    """Refuse a model folder that cannot be loaded, or not be trained where it is to be.

    Args:
        place: the policy's table, for the message.
        policy: its settings.
        trained: whether it is trained; a policy that only plays may be any that the engines serve.

    Raises:
        ConfigError: the folder or one of its files is missing or unreadable, or the trainer cannot take the model.
    """
    path, key = policy.model, f"{place}.model"
    if not path.is_dir():
        raise ConfigError(
            f"{key} = {str(path)!r}: there is no such folder; expected a Hugging Face model folder "
            "(config.json, *.safetensors, tokenizer.json); agar policy ENV DIR makes a small one in DIR/warm"
        )
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if not list(path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise ConfigError(f"{key} = {str(path)!r} lacks {', '.join(missing)}: expected a Hugging Face model folder")
    try:
        json.loads((path / "config.json").read_text())
    except ValueError as error:
        raise ConfigError(f"{key}: {path / 'config.json'} is not valid JSON: {error}") from error
    if trained:
        model_to_train(policy, place=place)
