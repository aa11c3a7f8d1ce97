"""Views of a task set: which rows, in which order; and what makes a set unfit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.tasks import GeneratedTasks, Tasks, TaskSet
from agar.envs.tasks.columns import TaskColumns
from agar.envs.tasks.files import JsonLines
from agar.errors import ConfigError
from agar.types import TaskRow


def numbered(size: int) -> Tasks:
    return Tasks(GeneratedTasks(lambda index: TaskRow(key=str(index), prompt="?", payload={"n": index}), size=size))


def keys(tasks: TaskSet) -> list[int]:
    return [int(tasks[index].key) for index in range(len(tasks))]


def test_a_view_is_a_task_set():
    tasks = numbered(4)
    assert isinstance(tasks, TaskSet)
    assert [row.key for row in tasks] == ["0", "1", "2", "3"]
    assert tasks[-1].key == "3"
    with pytest.raises(IndexError):
        tasks[4]


@given(st.integers(0, 20), st.slices(20))
def test_slices_are_those_of_a_list(size, part):
    assert keys(numbered(size)[part]) == list(range(size))[part]


def test_views_are_put_together():
    tasks = numbered(20).filter(lambda row: row.payload["n"] % 2 == 1)[2:]
    assert keys(tasks) == [5, 7, 9, 11, 13, 15, 17, 19]
    assert keys(tasks[::-1][:2]) == [19, 17]
    assert keys(Tasks(tasks, [0, 3])) == [5, 11]


@given(st.integers(0, 30), st.integers(0, 3))
def test_shuffling_moves_every_row_and_loses_none(size, seed):
    tasks = numbered(size)
    assert sorted(keys(tasks.shuffle(seed))) == list(range(size))
    assert keys(tasks.shuffle(seed)) == keys(tasks.shuffle(seed))
    assert size < 10 or keys(tasks.shuffle(seed)) != keys(tasks.shuffle(seed + 1))


@given(st.integers(0, 30), st.integers(1, 5))
def test_shards_share_no_row_and_miss_none(size, count):
    shards = [keys(numbered(size).shard(count, index)) for index in range(count)]
    assert sorted(row for shard in shards for row in shard) == list(range(size))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_there_is_no_shard_beyond_the_count():
    with pytest.raises(ConfigError, match="shards 0 to 1 of 2, got 2"):
        numbered(3).shard(2, 2)


def test_rows_are_changed_when_they_are_asked_for():
    asked = []

    def change(row):
        asked.append(row.key)
        return TaskRow(key=f"x{row.key}")

    tasks = numbered(1000).map(change)
    assert tasks[7].key == "x7"
    assert asked == ["7"]
    marked = numbered(3).marked(env="Guess-v0", split="heldout")[2]
    assert (marked.env, marked.split, marked.key) == ("Guess-v0", "heldout", "2")


def test_a_sound_set_is_counted():
    assert numbered(5).validate() == 5
    assert Tasks.of([]).validate() == 0


def test_every_unfit_row_is_counted_and_the_first_are_named():
    found = Tasks.of([
        TaskRow(key="a", prompt="?"), TaskRow(key="a", prompt="?"), TaskRow(key="", prompt="?"),
        TaskRow(key="b", prompt="?", payload={"seen": {1}}), TaskRow(key="c", prompt="x" * 9),
        TaskRow(key="d", prompt="?", payload={"mean": float("nan")}),
    ])  # fmt: skip
    with pytest.raises(ConfigError) as error:
        found.validate(lambda row: "its prompt is long" if len(row.prompt) > 8 else None)
    said = str(error.value)
    assert "5 of 6 tasks are unfit" in said
    assert "row 1 ('a'): row 0 has the same key" in said
    assert "row 2 (''): its key is empty" in said
    assert "row 3 ('b'): its payload has no form in JSON" in said
    assert "row 4 ('c'): its prompt is long" in said
    assert "row 5 ('d'): its payload has no form in JSON" in said
    with pytest.raises(ConfigError, match="and 7 more"):
        Tasks.of([TaskRow(key="")] * 12).validate()


def test_rows_that_cannot_be_read_are_named_with_the_others(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "?"}\n{"prompt\n{"prompt": null}\n{"prompt": ""}\n')
    with pytest.raises(ConfigError) as error:
        Tasks(JsonLines(path, TaskColumns())).validate()
    said = str(error.value)
    assert "3 of 4 tasks are unfit" in said
    assert "row 1: " in said
    assert "row 1 is not JSON" in said
    assert "row 2: rows row 2: prompt must be text or a list of messages" in said
    assert "row 3 ('rows/3'): its prompt is empty" in said


def test_a_task_without_a_prompt_has_a_seed_or_is_said_to_need_none():
    with pytest.raises(ConfigError, match="1 of 1 tasks are unfit"):
        Tasks.of([TaskRow(key="a", payload={"question": "2+2?"})]).validate()
    assert Tasks.of([TaskRow(key="a", payload={"seed": 4})]).validate() == 1
    assert Tasks.of([TaskRow(key="a", payload={"question": "2+2?"})]).validate(prompts=False) == 1
