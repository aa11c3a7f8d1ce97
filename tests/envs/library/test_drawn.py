"""A drawn task is in one split, whatever index it was drawn with."""

import json

import pytest

from agar.envs.library.drawn import DrawnTasks
from agar.errors import ConfigError
from agar.types import TaskRow

tasks = DrawnTasks("X-v0", lambda rng: ("which?", {"number": int(rng.integers(200))}), train=400, heldout=100)


def test_no_task_is_in_both_splits_and_both_have_their_share():
    train, heldout = ({json.dumps(dict(t.payload)) for t in tasks(split)} for split in ("train", "heldout"))
    assert not train & heldout
    assert 100 < len(train) < 180
    assert 15 < len(heldout) < 60


def test_an_index_always_gives_the_same_task():
    assert tasks("train")[7] == tasks("train")[7]
    assert tasks("train")[7].key == "train/7"
    with pytest.raises(ConfigError, match="split must be"):
        tasks("test")


def test_a_given_task_comes_before_a_drawn_one():
    import numpy as np

    row = TaskRow(key="mine")
    assert tasks.given_or_drawn({"task": row}, np.random.default_rng(1)) is row
    drawn = {tasks.given_or_drawn(None, np.random.default_rng(seed)).key for seed in range(30)}
    assert len(drawn) > 20
