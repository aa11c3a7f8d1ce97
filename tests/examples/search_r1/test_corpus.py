"""The corpus, invented ones beside it, and the tasks."""

import filecmp
from collections import Counter
from pathlib import Path

import pytest

from agar.envs.tasks import Tasks, TaskSet
from agar.examples.search_r1.corpus import INVENTED, NAMES, invented_tasks, make, tasks
from agar.examples.search_r1.invented import invent
from agar.examples.search_r1.library import chosen, definitions, names_of
from agar.types import TaskRow

pytestmark = pytest.mark.timeout(180)  # the first one to ask makes them


def rows(some: TaskSet) -> list[TaskRow]:
    return [some[at] for at in range(len(some))]


def about(row: TaskRow) -> str:
    return row.key.rpartition("/")[2]


def test_the_splits_share_no_name_and_hold_enough_of_every_kind() -> None:
    train, heldout = rows(tasks("train")), rows(tasks("heldout"))
    assert len(heldout) >= 128
    assert {about(row) for row in train}.isdisjoint({about(row) for row in heldout})
    for some in (train, heldout):
        kinds = Counter(row.payload["kind"] for row in some)
        assert set(kinds) == {"module", "parameter", "extends", "first"}
        assert kinds["first"] > 0.2 * len(some)  # two searches long
        assert Tasks.of(some).validate() == len(some)


def test_the_same_seed_makes_the_same_tasks(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make(tmp_path / name, seed=3, invented=1)
    for file in ("train.jsonl", "heldout.jsonl", "index-0.jsonl", "index-0/passages.jsonl"):
        assert filecmp.cmp(tmp_path / "one" / file, tmp_path / "two" / file, shallow=False), file


def test_invented_libraries_hold_the_names_and_none_of_the_facts() -> None:
    real = chosen(definitions(), names=NAMES)
    facts = {(each.name, each.module) for each in real} | {(each.name, each.parameter or each.base) for each in real}
    made = invent(real, seed=1)
    assert invent(real, seed=1) == made
    assert invent(real, seed=2) != made
    assert set(names_of(made)) <= set(names_of(real))
    kept = sum(
        ((each.name, each.module) in facts) + ((each.name, each.parameter or each.base) in facts) for each in made
    )
    assert kept < 0.02 * len(made)


def test_invented_tasks_name_the_index_that_holds_them() -> None:
    indexes = Counter(row.payload["index"] for row in rows(invented_tasks("train")))
    assert len(indexes) == INVENTED
    assert min(indexes.values()) > 50
