"""Mixtures of cursors."""

import json
from collections import Counter

import pytest

from agar.envs.tasks import GeneratedTasks, Mixture, TaskCursor, TaskStream
from agar.errors import ConfigError
from agar.types import TaskRow


def mixture(seed=3):
    sets = [GeneratedTasks(lambda index, name=name: TaskRow(key=f"{name}{index}"), size=7) for name in "ab"]
    return Mixture([(TaskCursor(sets[0], seed=1), 3.0), (TaskCursor(sets[1], seed=2), 1.0)], seed=seed)


def keys(cursor, count):
    return [cursor.next().key for _ in range(count)]


def test_parts_come_by_weight():
    found = Counter(key[0] for key in keys(mixture(), 2000))
    assert 0.72 < found["a"] / 2000 < 0.78


def test_each_part_walks_its_own_epochs():
    """What comes of one part is what its cursor alone would give."""
    alone = TaskCursor(GeneratedTasks(lambda index: TaskRow(key=f"a{index}"), size=7), seed=1)
    assert [key for key in keys(mixture(), 100) if key[0] == "a"][:20] == keys(alone, 20)


@pytest.mark.parametrize("taken", [0, 1, 30])
def test_it_goes_on_from_its_state(taken):
    mixed = mixture()
    keys(mixed, taken)
    state = json.loads(json.dumps(mixed.state()))
    expected = keys(mixed, 40)
    resumed = mixture(seed=99)
    resumed.load_state(state)
    assert keys(resumed, 40) == expected


def test_what_cannot_be_mixed_is_refused():
    stream = TaskStream(lambda: iter([TaskRow(key="a")]))
    for weights in ((), (0.0,), (1.0, -1.0), (float("inf"), 1.0), (float("nan"),)):
        with pytest.raises(ConfigError, match="finite weights above 0"):
            Mixture([(stream, weight) for weight in weights])
    with pytest.raises(ConfigError, match="has 2 parts, this one 1"):
        Mixture([(stream, 1.0)]).load_state(mixture().state())
    for state, said in (
        ({"drawn": 1}, "not that of a mixture"),
        ({**mixture().state(), "rng": {}}, "rng that is none"),
    ):
        with pytest.raises(ConfigError, match=said):
            mixture().load_state(state)
