"""The tasks that a recipe's tables name, and the walk over them."""

import importlib
from typing import cast

from agar.envs.registry import spec
from agar.envs.tasks import Curriculum, CurriculumCursor, Cursor, TaskCursor, TaskSet, TaskStream
from agar.envs.tasks.source import load_tasks
from agar.errors import ConfigError
from agar.rollout.config import EvaluationConfig, TasksConfig
from agar.rollout.sources.config import DemonstrationsConfig


def tasks_of(config: TasksConfig | EvaluationConfig | DemonstrationsConfig) -> TaskSet | TaskStream:
    """The tasks of a table: those that its `path` names, else the environment's own.

    Raises:
        ConfigError: there are none.
        MissingExtraError: they take a package that is not installed.
    """
    known = spec(config.env)
    if isinstance(config, DemonstrationsConfig) or config.path is None:
        return known.tasks(config.split)
    return load_tasks(config.path, config.columns, split=config.split, env=known.id)


def cursor_of(config: TasksConfig, *, seed: int) -> Cursor:
    """The walk over a `[[tasks]]` table: shuffled or in order, as its curriculum says, or as its generator yields.

    Raises:
        ConfigError: there are no tasks, or the curriculum is none.
        MissingExtraError: the tasks take a package that is not installed.
    """
    tasks, curriculum = tasks_of(config), curriculum_of(config)
    if isinstance(tasks, TaskStream):
        if curriculum is not None:
            raise ConfigError(f"{config.path} is a generator, which chooses its tasks itself: leave the curriculum out")
        return tasks
    if curriculum is not None:
        return CurriculumCursor(tasks, curriculum, seed=seed)
    return TaskCursor(tasks, seed=seed, shuffle=config.shuffle)


def curriculum_of(config: TasksConfig) -> Curriculum | None:
    """The curriculum that a table names, made anew; None where it names none.

    Raises:
        ConfigError: it cannot be made, or is no curriculum.
    """
    if config.curriculum is None:
        return None
    module, _, attribute = config.curriculum.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"{config.curriculum} cannot be made: {error}") from error
    missing = [name for name in ("choose", "observe", "state", "load_state") if not callable(getattr(made, name, None))]
    if missing:
        raise ConfigError(f"{config.curriculum} gave a {type(made).__name__} without {', '.join(missing)}")
    return cast(Curriculum, made)
