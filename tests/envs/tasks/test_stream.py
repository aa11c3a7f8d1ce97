"""Tasks from generators."""

import itertools
import json

import pytest

from agar.envs.tasks import TaskStream
from agar.errors import ConfigError
from agar.types import TaskRow


def endless():
    return (TaskRow(key=str(n)) for n in itertools.count())


def two():
    yield TaskRow(key="a")
    yield TaskRow(key="b")


def keys(stream, count):
    return [stream.next().key for _ in range(count)]


def test_a_generator_without_an_end_is_walked():
    assert keys(TaskStream(endless), 5) == ["0", "1", "2", "3", "4"]


def test_a_generator_that_ends_begins_anew():
    assert keys(TaskStream(two), 5) == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize("make", [endless, two])
@pytest.mark.parametrize("taken", [0, 1, 2, 5])
def test_it_goes_on_from_its_state(make, taken):
    stream = TaskStream(make)
    keys(stream, taken)
    state = json.loads(json.dumps(stream.state()))
    expected = keys(stream, 7)
    resumed = TaskStream(make)
    resumed.load_state(state)
    assert keys(resumed, 7) == expected


def test_nothing_and_odd_things_are_refused():
    with pytest.raises(ConfigError, match="yielded nothing"):
        TaskStream(lambda: iter(())).next()
    with pytest.raises(ConfigError, match="yielded str"):
        TaskStream(lambda: iter(["a"])).next()
    with pytest.raises(ConfigError, match="yielded NoneType"):
        TaskStream(lambda: iter([None, TaskRow(key="a")])).next()
    with pytest.raises(ConfigError, match="not that of a generator"):
        TaskStream(two).load_state({"epoch": 1})
    with pytest.raises(ConfigError, match="drawn -1, expected an integer of at least 0"):
        TaskStream(two).load_state({"drawn": -1})
