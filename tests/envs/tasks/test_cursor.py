"""Task cursors."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.tasks import GeneratedTasks, TaskCursor
from agar.errors import ConfigError
from agar.types import TaskRow


def numbered(size: int) -> GeneratedTasks:
    return GeneratedTasks(lambda index: TaskRow(key=str(index)), size=size)


def keys(cursor: TaskCursor, count: int) -> list[str]:
    return [cursor.next().key for _ in range(count)]


@given(st.integers(1, 30), st.integers(0, 5), st.booleans())
def test_every_epoch_holds_every_task_once(size, seed, shuffle):
    cursor = TaskCursor(numbered(size), seed=seed, shuffle=shuffle)
    for _ in range(3):
        assert sorted(keys(cursor, size), key=int) == [str(index) for index in range(size)]


def test_without_shuffling_the_order_is_the_sets_own():
    assert keys(TaskCursor(numbered(3), shuffle=False), 7) == ["0", "1", "2", "0", "1", "2", "0"]


def test_epochs_and_seeds_differ_in_order():
    cursor = TaskCursor(numbered(50), seed=1)
    first, second = keys(cursor, 50), keys(cursor, 50)
    assert first != second
    assert first != keys(TaskCursor(numbered(50), seed=2), 50)
    assert first == keys(TaskCursor(numbered(50), seed=1), 50)


@given(st.integers(1, 12), st.integers(0, 40), st.booleans())
def test_a_walk_goes_on_from_its_state_as_if_nothing_had_happened(size, taken, shuffle):
    cursor = TaskCursor(numbered(size), seed=7, shuffle=shuffle)
    keys(cursor, taken)
    state = json.loads(json.dumps(cursor.state()))
    expected = keys(cursor, 2 * size)
    resumed = TaskCursor(numbered(size), seed=7, shuffle=shuffle)
    resumed.load_state(state)
    assert keys(resumed, 2 * size) == expected


@pytest.mark.parametrize(
    "other", [TaskCursor(numbered(4), seed=1), TaskCursor(numbered(5), seed=2), TaskCursor(numbered(5), shuffle=False)]
)
def test_a_state_of_other_tasks_is_refused(other):
    with pytest.raises(ConfigError, match="resume with the same tasks"):
        TaskCursor(numbered(5), seed=1).load_state(other.state())


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "not that of a task set"),
        ({"drawn": 3}, "not that of a task set"),
        ({"index": 6}, "index 6, expected an integer from 0 to 5"),
        ({"index": -1}, "index -1, expected"),
        ({"index": "2"}, "index '2', expected"),
        ({"epoch": -1}, "epoch -1, expected an integer of at least 0"),
    ],
)
def test_what_is_no_position_of_it_is_refused(state, said):
    cursor = TaskCursor(numbered(5), seed=1)
    whole = cursor.state() if state.keys() & {"index", "epoch"} else {}
    with pytest.raises(ConfigError, match=said):
        cursor.load_state({**whole, **state})
    assert cursor.state()["index"] == 0


def test_an_empty_set_is_refused():
    with pytest.raises(ConfigError, match="at least one task"):
        TaskCursor(numbered(0))
