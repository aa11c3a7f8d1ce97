"""What is checked of an environment's answers; `test_runner` and `isolation/test_env` show it at work."""

import numpy as np
import pytest

from agar.envs.contract import (
    LARGEST_REWARD,
    checked_number,
    checked_observation,
    checked_reset,
    checked_step,
    shown,
    told,
)
from agar.errors import EnvError
from agar.types import ImagePart, Message, Outcome, TextPart, ToolCall


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


class Rewarding:
    """A number of another library's, whose conversion raises what it likes."""

    def __float__(self):
        raise RuntimeError("a tensor of two elements")


@pytest.mark.parametrize(
    ("reward", "complaint"),
    [
        (1e39, r"1e\+39: return a number of at most 1e\+30, of either sign \(float32\)"),
        (-1.7e308, "of either sign"),
        (10**400, "return a finite number"),
        (float("nan"), "return a finite number"),
        ("1.0", "'1.0': return a number, not a text"),
        (b"1", "not a text"),
        (None, "return a number"),
        (Rewarding(), r"return a number \(RuntimeError: a tensor of two elements\)"),
    ],
)
def test_a_reward_that_training_cannot_hold_is_named_and_so_is_a_part_of_one(reward, complaint):
    with pytest.raises(EnvError, match=f"X.step gave the reward .*{complaint}"):
        checked_step(("", reward, True, False, {}), name="X")
    with pytest.raises(EnvError, match=f"X: info.*'style' is .*{complaint}"):
        checked_step(("", 0.0, True, False, {"reward_parts": {"style": reward}}), name="X")


def test_the_advantages_and_sums_of_the_largest_rewards_fit_into_a_float32():
    assert checked_number(-LARGEST_REWARD, what="x") == -LARGEST_REWARD
    group = np.array([LARGEST_REWARD] + 7 * [-LARGEST_REWARD])
    with np.errstate(all="raise"):
        assert np.isfinite(((group - group.mean()) * 8 / 7).astype(np.float32)).all()
        assert np.isfinite(np.full(1_000_000, LARGEST_REWARD, np.float32).sum())


class Touchy:
    """Cannot be compared."""

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message(role="alien", content="x"), "the role 'alien': give one of system, user, assistant, tool"),
        (Message(role=["user"], content="x"), "the role"),
        (Message(role="user", content="x", reasoning=5), "reasoning = 5"),
        (Message(role="tool", content="x", tool_call_id=5), "tool_call_id = 5"),
        (Message(role="assistant", tool_calls=("sh",)), "the tool call 'sh'"),
        (Message(role="assistant", tool_calls=None), "the tool call None"),
        (Message(role="assistant", tool_calls=(ToolCall(id="1", name="sh", arguments={"a": {1}}),)), "not JSON-able"),
    ],
)
def test_a_message_that_no_conversation_can_hold_is_named(message, complaint):
    with pytest.raises(EnvError, match=f"X gave a message .*{complaint}"):
        checked_observation(message, name="X")


@pytest.mark.parametrize(
    "message",
    [
        "say \ud800",
        Message(role="user", content=(TextPart(text="say \ud800"),)),
        Message(role="user", content=(ImagePart(url="\ud800"),)),
        Message(role="assistant", reasoning="\ud800"),
        Message(role="tool", tool_call_id="\ud800"),
        Message(role="assistant", tool_calls=(ToolCall(id="1", name="sh", arguments={"a": "\ud800"}),)),
    ],
)
def test_half_a_surrogate_pair_is_named_before_a_tokenizer_meets_it(message):
    with pytest.raises(EnvError, match="X gave a message with half a surrogate pair at character"):
        checked_observation(message, name="X")
    assert checked_observation("an emoji \U0001f600 is whole", name="X")


def test_a_failure_that_cannot_even_be_compared_is_no_outcome():
    with pytest.raises(EnvError, match=r"set an agar\.Outcome"):
        checked_step(("", 0.0, True, False, {"failure": Touchy()}), name="X")
