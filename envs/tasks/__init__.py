"""Task sets (data) and task cursors (a position in one)."""

from agar.envs.tasks.base import (
    SPLITS,
    GeneratedTasks,
    SeededTasks,
    TaskSet,
    TaskSource,
    check_split,
    rows,
)
from agar.envs.tasks.cursor import TaskCursor
from agar.envs.tasks.view import Tasks

__all__ = [
    "SPLITS",
    "GeneratedTasks",
    "SeededTasks",
    "TaskCursor",
    "TaskSet",
    "TaskSource",
    "Tasks",
    "check_split",
    "rows",
]
