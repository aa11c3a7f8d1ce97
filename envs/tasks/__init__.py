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
from agar.envs.tasks.curriculum import Curriculum, CurriculumCursor, Levels
from agar.envs.tasks.cursor import TaskCursor
from agar.envs.tasks.mixture import Cursor, Mixture
from agar.envs.tasks.stream import TaskStream
from agar.envs.tasks.view import Tasks

__all__ = [
    "SPLITS",
    "Curriculum",
    "CurriculumCursor",
    "Cursor",
    "GeneratedTasks",
    "Levels",
    "Mixture",
    "SeededTasks",
    "TaskCursor",
    "TaskSet",
    "TaskSource",
    "TaskStream",
    "Tasks",
    "check_split",
    "rows",
]
