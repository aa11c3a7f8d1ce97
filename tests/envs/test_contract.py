"""What is checked of an environment's answers; `test_runner` and `isolation/test_env` show it at work."""

import numpy as np
import pytest

from agar.envs.contract import checked_observation, checked_reset, checked_step, shown, told
from agar.errors import EnvError
from agar.types import ImagePart, Message, Outcome, TextPart


class Rude:
    """Cannot even be shown."""

    def __repr__(self):
        raise RuntimeError("no")


def test_numpy_values_are_taken_for_what_they_are():
    result = ("go", np.float32(0.5), np.bool_(True), np.bool_(False), {"failure": "env_error"})
    messages, reward, terminated, truncated, info = checked_step(result, name="X")
    assert (reward, terminated, truncated, info["failure"]) == (0.5, True, False, Outcome.ENV_ERROR)
    assert (type(reward), type(terminated)) == (float, bool)
    assert messages == [Message(role="user", content="go")]


def test_the_size_of_an_observation_counts_texts_images_and_messages():
    message = Message(role="user", content=(TextPart(text="abc"), ImagePart(url="12345")), reasoning="xy")
    assert checked_observation([message], name="X", max_chars=11) == [message]
    with pytest.raises(EnvError, match="11 characters, at most 10"):
        checked_observation([message], name="X", max_chars=10)
    with pytest.raises(EnvError, match="1,000 characters"):
        checked_reset(([Message(role="user")] * 1000, {}), name="X", max_chars=999)


def test_what_cannot_be_shown_is_told_all_the_same():
    assert shown(Rude()) == "a Rude whose repr raises RuntimeError"
    assert len(shown("x" * 9999)) < 250
    assert told(ValueError("x" * 9999)).startswith("ValueError: xxx")
    assert len(told(ValueError("x" * 9999))) < 2100
    with pytest.raises(EnvError, match="a Rude whose repr raises"):
        checked_step(("", Rude(), True, False, {}), name="X")
