"""How the columns of a data set become a task."""

import pytest

from agar.envs.tasks.columns import TaskColumns
from agar.errors import ConfigError


def row(columns, **settings):
    return TaskColumns(**settings).row(columns, name="maths", index=3, split="train", env="Sums-v0")


def test_what_is_no_prompt_is_payload():
    task = row({"prompt": "2+2?", "answer": "4", "level": 1})
    assert (task.key, task.prompt, task.split, task.env) == ("maths/3", "2+2?", "train", "Sums-v0")
    assert task.payload == {"answer": "4", "level": 1}


def test_columns_have_other_names_elsewhere():
    task = row({"question": "2+2?", "answer": "4", "uid": 17}, prompt="question", key="uid", payload=("answer",))
    assert (task.key, task.prompt, dict(task.payload)) == ("17", "2+2?", {"answer": "4"})


def test_a_payload_column_is_the_payload():
    assert row({"prompt": "?", "payload": {"answer": 4}, "source": "x"}).payload == {"answer": 4}


def test_messages_go_to_the_payload():
    """The form of slime's and verl's prompt columns."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    task = row({"prompt": messages, "answer": "4"})
    assert task.prompt == "2+2?"
    assert task.payload == {"answer": "4", "messages": messages}


def test_a_set_without_prompts_has_empty_ones():
    assert row({"seed": 1}).prompt == ""


def test_nobody_has_named_the_prompt_in_settings_that_were_written_and_read_again():
    again = TaskColumns.model_validate_json(TaskColumns().model_dump_json())
    assert again.row({"seed": 1}, name="maths", index=3, split="train", env="Sums-v0").prompt == ""


@pytest.mark.parametrize(
    ("columns", "settings", "said"),
    [
        ({"prompt": "?"}, {"key": "uid"}, r"columns \['prompt'\], not \['uid'\]"),
        ({"prompt": "?"}, {"payload": ("answer",)}, r"not \['answer'\]"),
        ({"text": "?"}, {"prompt": "question"}, r"not \['question'\]"),
        ({"text": "?"}, {"prompt": "prompt"}, r"not \['prompt'\]"),
        *(({"prompt": none}, {}, "must be text or a list of messages") for none in (None, 0, [], False)),
        ({"prompt": 7}, {}, "must be text or a list of messages"),
        ({"prompt": [{"role": "user"}]}, {}, "must be text or a list of messages"),
    ],
)
def test_what_does_not_fit_is_named(columns, settings, said):
    with pytest.raises(ConfigError, match=said):
        row(columns, **settings)
