"""Tasks by the names that a recipe gives them."""

import json
import sys
import types

import pytest

from agar.envs.tasks import GeneratedTasks, TaskStream
from agar.envs.tasks.columns import TaskColumns
from agar.envs.tasks.source import load_tasks
from agar.errors import ConfigError
from agar.types import TaskRow


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(json.dumps({"question": f"{n}?"}) for n in range(10)))
    return path


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("my_tasks")

    def generator():
        yield TaskRow(key="a")

    made.by_split = lambda split: GeneratedTasks(lambda index: TaskRow(key=f"{split}{index}"), size=3)
    made.listed = [TaskRow(key="x"), TaskRow(key="y")]
    made.generator = generator
    made.number = 7
    monkeypatch.setitem(sys.modules, "my_tasks", made)


@pytest.mark.parametrize(
    ("part", "places"),
    [("", range(10)), ("@[:3]", range(3)), ("@[-2:]", [8, 9]), ("@[2:8:3]", [2, 5]), ("@[::-1]", range(9, -1, -1))],
)
def test_a_file_and_a_slice_of_it(lines, part, places):
    tasks = load_tasks(f"{lines}{part}", TaskColumns(prompt="question"), split="heldout", env="Sums-v0")
    assert [task.prompt for task in tasks] == [f"{n}?" for n in places]
    assert [task.key for task in tasks] == [f"sums/{n}" for n in places]  # its name does not depend on the slice
    assert all((task.env, task.split) == ("Sums-v0", "heldout") for task in tasks)


def test_something_in_a_module(module):
    assert [task.key for task in load_tasks("my_tasks:by_split", split="heldout")] == [
        "heldout0", "heldout1", "heldout2",
    ]  # fmt: skip
    assert [task.key for task in load_tasks("my_tasks:listed@[1:]")] == ["y"]
    stream = load_tasks("my_tasks:generator")
    assert isinstance(stream, TaskStream)
    assert stream.next().key == "a"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tasks.csv", "names no tasks"),
        ("nowhere.jsonl", "cannot read the tasks"),
        ("no_such_module:tasks", "cannot take tasks from"),
        ("my_tasks:missing", "cannot take tasks from"),
        ("my_tasks:number", "gave int"),
        ("my_tasks:generator@[:3]", "a generator has no slices"),
        ("my_tasks:listed@[::0]", "step cannot be 0"),
        ("my_tasks:listed@[-:5]", "names no tasks"),
        ("my_tasks:listed@[5:-]", "names no tasks"),
        ("hf:/nowhere", "cannot load 'train' of the data set"),
    ],
)
def test_what_is_not_there_is_named(module, name, said, monkeypatch):
    if name.startswith("hf:"):
        datasets = pytest.importorskip("datasets")
        monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    with pytest.raises(ConfigError, match=said):
        load_tasks(name)
