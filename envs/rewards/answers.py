"""Answers in words: exact match and F1 by SQuAD's rules."""

import re
import string
from collections import Counter
from collections.abc import Callable

from agar.envs.rewards.extract import Extract, gold_of, whole
from agar.envs.rubric import Conversation

Score = Callable[[Conversation], float]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


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
