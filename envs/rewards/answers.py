"""Answers in words: exact match and F1 by SQuAD's rules, multiple choice."""

import re
import string
from collections import Counter
from collections.abc import Callable

from agar.envs.rewards.extract import Extract, gold_of, whole
from agar.envs.rubric import Conversation

Score = Callable[[Conversation], float]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SAID = re.compile(r"\b(?:answer|choice|option)\b(?:\s+is)?\s*:?\s*\**\(?([A-Z])\b(?!')", re.IGNORECASE)
_ALONE = re.compile(r"^\**\(?([A-Z])\)?\**(?:[.:)]|\s*$)")
_ALSO = re.compile(r"^\)?\**\s*(?:,|/|;|\bor\b|\band\b)\s*\(?[A-Z]\b", re.IGNORECASE)


def normalise(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces.

    Source: Rajpurkar et al., SQuAD (2016), the official evaluation script.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str = "answer", *, extract: Extract = whole) -> Score:
    """1 if the answer equals a right one by SQuAD's rules, else 0.

    Args:
        gold: the entry of the task's payload that holds the right answer, or a list of right ones.
        extract: finds the answer in the reply.
    """

    def score(told: Conversation) -> float:
        said = extract(told.reply)
        return float(said is not None and any(normalise(said) == normalise(right) for right in gold_of(told, gold)))

    return score


def f1(gold: str = "answer", *, extract: Extract = whole) -> Score:
    """The F1 of the words of the answer and of the right one that it fits best, by SQuAD's rules; 0 to 1.

    Args:
        gold: the entry of the task's payload that holds the right answer, or a list of right ones.
        extract: finds the answer in the reply.
    """

    def score(told: Conversation) -> float:
        said = extract(told.reply)
        return 0.0 if said is None else max(_overlap(said, right) for right in gold_of(told, gold))

    return score


def _overlap(said: str, right: str) -> float:
    mine, theirs = normalise(said).split(), normalise(right).split()
    if not mine or not theirs:
        return float(mine == theirs)
    common = sum((Counter(mine) & Counter(theirs)).values())
    return 2 * common / (len(mine) + len(theirs))


def multiple_choice(gold: str = "answer", *, choices: str = "choices", extract: Extract = whole) -> Score:
    """1 if the answer names the right choice, else 0; an answer that names several at once is wrong.

    The right one is a letter, or its text or number (from 0) among `choices`. In the reply it is the last "answer is
    B", or a letter alone on the first or last line, or the choice's own text.

    Args:
        gold: the entry of the task's payload that holds the right choice.
        choices: the entry that lists the choices' texts, where there is one.
        extract: finds the answer in the reply.
    """

    def score(told: Conversation) -> float:
        texts = [str(text) for text in told.task.payload.get(choices) or ()]
        (right, *_) = gold_of(told, gold)
        said = extract(told.reply)
        return float(said is not None and _letter(said, texts) == _letter_of(right, texts))

    return score


def _letter_of(right: str, texts: list[str]) -> str:
    if right in texts:
        return string.ascii_uppercase[texts.index(right)]
    if right.isdecimal() and int(right) < len(texts):
        return string.ascii_uppercase[int(right)]
    return right.strip().strip("().").upper()


def _letter(said: str, texts: list[str]) -> str | None:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if (found := list(_SAID.finditer(said))) and found[-1][1].isupper():
        return None if _ALSO.match(said[found[-1].end() :]) else found[-1][1]
    for line in (*lines[-1:], *lines[:1]):
        if (alone := _ALONE.match(line)) is not None:
            return alone[1]
    named = [place for place, text in enumerate(texts) if normalise(text) == normalise(said)]
    return string.ascii_uppercase[named[0]] if len(named) == 1 else None
