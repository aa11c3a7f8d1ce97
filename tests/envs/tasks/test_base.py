"""Task sets."""

import itertools

import pytest

from agar.envs.registry import spec
from agar.envs.tasks import GeneratedTasks, SeededTasks, TaskSet, rows
from agar.errors import ConfigError
from agar.types import TaskRow


def numbered(size: int) -> GeneratedTasks:
    return GeneratedTasks(lambda index: TaskRow(key=str(index)), size=size)


def test_generated_tasks_are_a_finite_sequence():
    tasks = numbered(3)
    assert isinstance(tasks, TaskSet)
    assert [task.key for task in tasks] == ["0", "1", "2"]
    assert tasks[-1].key == "2"
    with pytest.raises(IndexError):
        tasks[3]
    assert [task.key for task in rows(tasks, limit=2)] == ["0", "1"]


def test_seeded_tasks_of_the_two_splits_share_no_seed_and_no_key():
    source = SeededTasks("Guess-v0", train=50, heldout=30)
    train, heldout = list(source("train")), list(source("heldout"))
    assert (len(train), len(heldout)) == (50, 30)
    assert {task.payload["seed"] for task in train}.isdisjoint(task.payload["seed"] for task in heldout)
    assert {task.key for task in train}.isdisjoint(task.key for task in heldout)
    assert {(task.env, task.split) for task in heldout} == {("Guess-v0", "heldout")}


@pytest.mark.parametrize("name", ["Guess-v0", "Hunt-v0"])
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_an_index_always_gives_the_same_row(name, split):
    first = list(itertools.islice(spec(name).tasks(split), 20))
    assert first == list(itertools.islice(spec(name).tasks(split), 20))
    assert len({task.key for task in first}) == 20


def test_an_unknown_split_is_refused():
    with pytest.raises(ConfigError, match="train, heldout"):
        spec("Guess-v0").tasks("test")
