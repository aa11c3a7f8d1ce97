"""The tasks of a recipe's tables, and the walks over them."""

import json
import sys
import types

import pytest

from agar.envs.tasks import CurriculumCursor, Levels, TaskCursor, TaskStream
from agar.envs.tasks.columns import TaskColumns
from agar.errors import ConfigError
from agar.rollout.config import EvaluationConfig, TasksConfig
from agar.rollout.sources.config import DemonstrationsConfig
from agar.rollout.streams import curriculum_of, cursor_of, tasks_of
from agar.types import TaskRow


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(json.dumps({"question": f"{n}?", "level": n // 2}) for n in range(6)))
    return file


@pytest.fixture(autouse=True)
def module(monkeypatch):
    def generator():
        yield TaskRow(key="a")

    made = types.ModuleType("my_streams")
    made.generator, made.Levels, made.number = generator, Levels, lambda: 7
    monkeypatch.setitem(sys.modules, "my_streams", made)


def test_without_a_path_the_tasks_are_the_environments():
    assert tasks_of(TasksConfig(env="Guess-v0"))[1].payload == {"seed": 2}
    assert tasks_of(EvaluationConfig(env="Guess-v0"))[1].payload == {"seed": 3}
    shown = DemonstrationsConfig.model_validate({"env": "Guess-v0", "phases": [{"agents": [{"policy": "a:b"}]}]})
    assert tasks_of(shown)[0].payload == {"seed": 0}


def test_a_path_is_walked_as_the_table_says(path):
    config = TasksConfig(env="Guess-v0", path=f"{path}@[1:4]", columns=TaskColumns(prompt="question"), shuffle=False)
    walk = cursor_of(config, seed=1)
    assert isinstance(walk, TaskCursor)
    assert [walk.next().prompt for _ in range(4)] == ["1?", "2?", "3?", "1?"]
    assert walk.next().env == "Guess-v0"


def test_a_generator_is_its_own_walk():
    config = TasksConfig(env="Guess-v0", path="my_streams:generator")
    assert isinstance(cursor_of(config, seed=1), TaskStream)
    with pytest.raises(ConfigError, match="leave the curriculum out"):
        cursor_of(config.model_copy(update={"curriculum": "my_streams:Levels"}), seed=1)


def test_a_curriculum_chooses(path):
    config = TasksConfig(env="Guess-v0", path=str(path), curriculum="my_streams:Levels")
    walk = cursor_of(config, seed=1)
    assert isinstance(walk, CurriculumCursor)
    assert {walk.next().payload["level"] for _ in range(20)} == {0}
    assert curriculum_of(config) is not curriculum_of(config)  # every walk has its own


@pytest.mark.parametrize(("name", "said"), [("my_streams:number", "gave a int without choose"), ("my_streams:x", "x")])
def test_what_is_no_curriculum_is_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        curriculum_of(TasksConfig(env="Guess-v0", curriculum=name))
