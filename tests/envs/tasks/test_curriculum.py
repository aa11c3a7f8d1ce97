"""Curricula: the hook, and the one by levels."""

import json
from collections import Counter

import pytest

from agar.envs.tasks import CurriculumCursor, GeneratedTasks, Levels
from agar.errors import ConfigError
from agar.types import TaskRow

TASKS = GeneratedTasks(lambda index: TaskRow(key=str(index), payload={"level": index // 10}), size=30)


def cursor(**settings):
    return CurriculumCursor(TASKS, Levels(**{"window": 4, "threshold": 0.75, **settings}), seed=5)


def levels(walk, count):
    return Counter(walk.next().payload["level"] for _ in range(count))


def play(walk, rewards, count):
    for _ in range(count):
        walk.observe(walk.next(), rewards)


def test_it_begins_with_the_lowest_level():
    assert set(levels(cursor(), 50)) == {0}


def test_the_next_level_begins_once_the_present_one_is_mastered():
    walk = cursor()
    play(walk, [1.0, 0.0], 10)  # a mean of 0.5
    assert set(levels(walk, 50)) == {0}
    play(walk, [1.0, 1.0, 0.5], 4)  # the window forgets the others
    found = levels(walk, 400)
    assert set(found) == {0, 1}
    assert 0.4 < found[1] / 400 < 0.6


def test_only_the_present_level_counts():
    walk = cursor()
    play(walk, [1.0], 4)
    for _ in range(20):
        walk.observe(TASKS[3], [1.0])  # of level 0, while the present one is 1
        walk.observe(TASKS[12], [])  # every attempt failed
    assert 2 not in levels(walk, 50)


def test_the_last_level_has_none_above_it():
    walk = cursor(window=1)
    play(walk, [1.0], 200)
    assert set(levels(walk, 200)) == {0, 1, 2}


@pytest.mark.parametrize("taken", [0, 3, 25])
def test_it_goes_on_from_its_state(taken):
    walk = cursor()
    play(walk, [1.0], taken)
    state = json.loads(json.dumps(walk.state()))
    expected = [walk.next().key for _ in range(30)]
    resumed = CurriculumCursor(TASKS, Levels(window=4, threshold=0.75), seed=1)
    resumed.load_state(state)
    assert [resumed.next().key for _ in range(30)] == expected


def test_groups_that_were_in_play_at_a_resume_count_as_they_would_have():
    walk = cursor()
    played = [walk.next() for _ in range(4)]
    walk.observe(played[0], [1.0])
    state = json.loads(json.dumps(walk.state()))
    resumed = cursor()
    resumed.load_state(state)
    for each in (walk, resumed):
        for task in played[1:]:
            each.observe(task, [1.0])  # before a task is chosen
    assert resumed.state() == walk.state()
    assert set(levels(resumed, 50)) == {0, 1}


def test_a_state_without_levels_is_that_of_an_older_version():
    walk = cursor()
    play(walk, [1.0], 5)
    state = walk.state()
    del state["curriculum"]["levels"]
    resumed = cursor()
    resumed.load_state(state)
    resumed.observe(TASKS[12], [1.0])
    assert resumed.next().key == walk.next().key


def test_what_cannot_be_walked_is_refused():
    with pytest.raises(ConfigError, match="at least one task"):
        CurriculumCursor(TASKS_OF_NONE, Levels())
    with pytest.raises(ConfigError, match="needs an integer 'difficulty'"):
        cursor(level="difficulty").next()
    with pytest.raises(ConfigError, match="not that of a curriculum"):
        cursor().load_state({"epoch": 0})
    with pytest.raises(ConfigError, match="not that of levels"):
        cursor().load_state({"curriculum": {}, "rng": {}})
    state = cursor().state()
    with pytest.raises(ConfigError, match="rng that is none"):
        cursor().load_state({**state, "rng": None})
    later = cursor()
    later.load_state({**state, "curriculum": {"at": 9, "recent": []}})
    with pytest.raises(ConfigError, match="at level 9 of"):
        later.next()

    class Beyond(Levels):
        def choose(self, tasks, rng):
            return len(tasks)

    with pytest.raises(ConfigError, match="Beyond chose task 30 of 30"):
        CurriculumCursor(TASKS, Beyond()).next()


TASKS_OF_NONE = GeneratedTasks(lambda index: TaskRow(key=str(index)), size=0)
