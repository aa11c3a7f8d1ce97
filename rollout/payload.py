"""What a task carries, in the one form that it has before and after a checkpoint and in a trace."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from agar.errors import ConfigError
from agar.types import TaskRow


def as_kept(task: TaskRow, *, env: str) -> TaskRow:
    """The task with its payload as JSON gives it back, so that an environment never sees it in two forms.

    Args:
        task: as its task set gives it. Tuples and numpy's arrays become lists, numpy's numbers Python's.
        env: the environment's id, for the message.

    Raises:
        ConfigError: the payload holds what would come back changed (keys that are no text), or not at all.
    """
    try:
        payload = json.loads(json.dumps(_plain(task.payload)))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the payload of task {task.key!r} of {env} cannot be kept: {error}; let its task set give plain values "
            "(text, numbers, lists, tables whose keys are text)"
        ) from error
    return replace(task, payload=payload)


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"expected text as the key of a table, got {key!r}")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
