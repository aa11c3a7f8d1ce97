"""What a run shows: log lines above the table, rows in the metrics file."""

import json
import logging

import pytest

from agar.recipe.folder import RunFolder
from agar.recipe.view import View


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "a")


def steps(folder: RunFolder) -> list[int]:
    return [json.loads(line)["step"] for line in folder.metrics.read_text().splitlines()]


@pytest.mark.parametrize(("level", "shown"), [(logging.WARNING, False), (logging.INFO, True)])
def test_how_much_is_logged_above_the_table_follows_the_log_level(folder, capsys, level, shown):
    root = logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        with View(folder, steps=1):
            logging.getLogger("agar.rollout.engines").info("version %d is out", 3)
            logging.getLogger("agar.rollout.engines").warning("an engine is slow")
    finally:
        root.setLevel(before)
    out = capsys.readouterr().out
    assert ("info: version 3 is out" in out) is shown
    assert "warning: an engine is slow" in out


def test_an_error_is_shown_with_where_it_came_from(folder, capsys):
    with View(folder, steps=1):
        try:
            raise ZeroDivisionError("in a keeper")
        except ZeroDivisionError:
            logging.getLogger("agar").exception("the keeper failed")
    assert "ZeroDivisionError: in a keeper" in capsys.readouterr().out


@pytest.mark.parametrize(("resume_after", "kept"), [(2, [1, 2]), (-1, []), (None, [1, 2, 3])])
def test_a_resume_keeps_the_rows_up_to_where_it_goes_on(folder, resume_after, kept):
    with View(folder, steps=3) as view:
        for step in (1, 2, 3):
            view.step(step, {"rollout/reward_mean": 0.5})
    with View(folder, steps=3, resume_after=resume_after):
        pass
    assert steps(folder) == kept
