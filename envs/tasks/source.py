"""Tasks by name, as a recipe names them: a file, a data set, or something in a module."""

import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agar.envs.tasks.base import TaskSet
from agar.envs.tasks.columns import TaskColumns
from agar.envs.tasks.files import JsonLines, Parquet
from agar.envs.tasks.harbor import HarborTasks
from agar.envs.tasks.hub import HubTasks
from agar.envs.tasks.stream import TaskStream
from agar.envs.tasks.view import Tasks
from agar.errors import ConfigError
from agar.types import TaskRow

_SLICE = re.compile(r"^(?P<name>.+)@\[(?P<start>-?\d+)?:(?P<stop>-?\d+)?(?::(?P<step>-?\d+))?\]$")
_MODULE = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
_FILES: Mapping[str, type[JsonLines] | type[Parquet]] = {".jsonl": JsonLines, ".parquet": Parquet}


def load_tasks(
    name: str, columns: TaskColumns | None = None, *, split: str = "train", env: str = ""
) -> "Tasks | TaskStream":
    """Find tasks.

    Args:
        name: `FILE.jsonl`, `FILE.parquet`, a folder of task folders in Harbor's format, `hf:DATASET[:CONFIG[:PART]]`,
            or `module:attr`; any of them may end in a slice as Python writes it: `gsm8k.jsonl@[:1000]`.
        columns: which column is what, for files and data sets.
        split: the split that the tasks belong to.
        env: the environment that they are for.

    Returns:
        A task set; of a generator function, a `TaskStream`.

    Raises:
        ConfigError: nothing is found, or it is no set of tasks.
        MissingExtraError: it takes a package that is not installed.
    """
    sliced = _SLICE.match(name)
    plain = sliced["name"] if sliced else name
    found = _find(plain, columns or TaskColumns(), split, env)
    if isinstance(found, TaskStream):
        if sliced:
            raise ConfigError(f"{name}: a generator has no slices; let it yield what is wanted")
        return found
    tasks = Tasks(found)
    return tasks[_slice(sliced)] if sliced else tasks


def _find(name: str, columns: TaskColumns, split: str, env: str) -> TaskSet | TaskStream:
    if name.startswith("hf:"):
        dataset, _, rest = name.removeprefix("hf:").partition(":")
        config, _, part = rest.partition(":")
        return HubTasks.load(dataset, columns, config=config or None, part=part or "train", split=split, env=env)
    if (kind := _FILES.get(Path(name).suffix)) is not None:
        return kind(Path(name), columns, split=split, env=env)
    if Path(name).is_dir():
        return HarborTasks(Path(name), split=split, env=env)
    if _MODULE.match(name):
        return _from_module(name, split, env)
    raise ConfigError(
        f"{name!r} names no tasks: expected FILE.jsonl, FILE.parquet, a folder of task folders, hf:DATASET or "
        "module:attr, perhaps with @[a:b]"
    )


def _from_module(name: str, split: str, env: str) -> TaskSet | TaskStream:
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"cannot take tasks from {name}: {error}; check the spelling") from error
    if inspect.isgeneratorfunction(found):
        return TaskStream(found)
    made = found(split) if callable(found) and not isinstance(found, TaskSet) else found
    if isinstance(made, Sequence) and all(isinstance(row, TaskRow) for row in made):
        return Tasks.of(made)
    if not isinstance(made, TaskSet):
        raise ConfigError(f"{name} gave {type(made).__name__}: expected a task set, a list of TaskRow or a generator")
    return made


def _slice(match: re.Match[str]) -> slice:
    start, stop, step = (int(text) if text else None for text in match.group("start", "stop", "step"))
    if step == 0:
        raise ConfigError(f"{match.string}: a slice's step cannot be 0")
    return slice(start, stop, step)
