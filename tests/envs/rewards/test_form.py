"""Patterns and lengths."""

import pytest

from agar.envs.rewards.form import length, matches
from agar.errors import ConfigError


def test_the_whole_reply_has_the_form(told):
    score = matches(r"<think>.*</think>\s*<answer>.*</answer>")
    assert score(told("<think>a\nb</think>\n<answer>1</answer>\n")) == 1.0
    assert score(told("so: <think>a</think><answer>1</answer>")) == 0.0
    with pytest.raises(ConfigError, match="no regular expression"):
        matches("(")


@pytest.mark.parametrize(
    ("words", "score"), [(0, 0.0), (1, 0.0), (2, 1.0), (10, 1.0), (11, 0.9), (15, 0.5), (20, 0.0), (99, 0.0)]
)
def test_a_length_falls_off_softly(told, words, score):
    assert length(least=2, most=10, limit=20)(told("x " * words)) == pytest.approx(score)


def test_a_length_without_a_soft_end(told):
    score = length(most=3, unit="characters")
    assert [score(told("x" * n)) for n in (0, 3, 4)] == [1.0, 1.0, 0.0]
    with pytest.raises(ConfigError, match="least <= most < limit"):
        length(most=3, limit=3)
