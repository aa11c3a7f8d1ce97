"""Letters are marked as the rules say."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agar.envs.library.words import Words, all_words, marks, tasks
from agar.types import TaskRow

words = st.text("abcde", min_size=5, max_size=5)


@pytest.mark.parametrize(
    ("guess", "hidden", "answer"),
    [
        ("crane", "crane", "c+ r+ a+ n+ e+"),
        ("paper", "apple", "p~ a~ p+ e~ r."),
        ("sleep", "eagle", "s. l~ e~ e~ p."),
        ("geese", "eagle", "g~ e~ e. s. e+"),
        ("mummy", "gamma", "m. u. m+ m+ y."),
    ],
)
def test_marks_by_hand(guess, hidden, answer):
    assert marks(guess, hidden) == answer


@given(words, words)
def test_a_letter_is_marked_as_often_as_it_occurs(guess, hidden):
    answered = marks(guess, hidden).split()
    assert "".join(pair[0] for pair in answered) == guess
    assert [pair[1] == "+" for pair in answered] == [one == other for one, other in zip(guess, hidden, strict=True)]
    marked = Counter(pair[0] for pair in answered if pair[1] != ".")
    assert marked == Counter(guess) & Counter(hidden)


def test_six_guesses_and_the_word_is_told():
    env = Words()
    env.reset(options={"task": TaskRow(key="w", payload={"word": "crane"})})
    assert env.step("Maybe TRAIN.")[0] == "t. r+ a+ i. n~"
    assert env.step("no")[0] == "Say a word of five letters."
    for _ in range(3):
        assert not env.step("apple")[2]
    assert env.step("apple")[:3] == ("a~ p. p. l. e+\nIt was crane.", 0.0, True)
    env.reset(options={"task": TaskRow(key="w", payload={"word": "crane"})})
    assert env.step("apple or crane")[1:3] == (1.0, True)


def test_the_words_are_words_and_each_is_in_one_split():
    assert all(len(word) == 5 and word.isascii() and word.islower() for word in all_words())
    assert len(set(all_words())) == len(all_words()) > 500
    train, heldout = ({t.payload["word"] for t in tasks(split)} for split in ("train", "heldout"))
    assert not train & heldout
    assert train | heldout == set(all_words())
