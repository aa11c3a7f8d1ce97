"""What a cell says as one text."""

import pytest

from agar.sandbox.kernel.cell import Cell

REPLY = {"status": "ok", "output": "", "cut": 0, "shown": [], "error": None, "lost": False}


def test_everything_is_in_the_text_in_the_order_in_which_it_came():
    cell = Cell(
        status="error",
        output="printed\n",
        shown=({"text/plain": "1"}, {"text/plain": "<Figure>", "image/png": "iVBO"}),
        error="Traceback\nValueError: no\n",
        notices=("Mind this.",),
    )
    assert cell.to_text() == "printed\n1\n<Figure> [image/png]\nTraceback\nValueError: no\n[Mind this.]"
    assert Cell(status="ok").to_text() == ""


@pytest.mark.parametrize(
    ("reply", "deadline_s", "notices"),
    [
        ({}, None, ()),
        ({}, 3.0, ()),  # it came to its end just then
        ({"status": "interrupted"}, 3.0, ("The cell was ended after 3 s.",)),
        ({"status": "interrupted"}, None, ()),
        ({"lost": True}, None, ("The interpreter had died before this cell: it began without variables.",)),
        (
            {"status": "died", "signal": 9, "code": None},
            None,
            ("The interpreter died (signal 9): a new one has started, without variables.",),
        ),
        (
            {"status": "died", "signal": None, "code": 3},
            2.5,
            (
                "The cell was ended after 2.5 s.",
                "The interpreter died (exit status 3): a new one has started, without variables.",
            ),
        ),
    ],
)
def test_notices_say_what_the_output_does_not(reply, deadline_s, notices):
    assert Cell.from_reply({**REPLY, **reply}, deadline_s=deadline_s).notices == notices


@pytest.mark.parametrize("broken", [{"status": "fine"}, {"shown": 3}, {"shown": [3]}, {"cut": "many"}])
def test_what_no_interpreter_says_is_refused(broken):
    with pytest.raises((TypeError, ValueError)):
        Cell.from_reply({**REPLY, **broken}, deadline_s=None)
