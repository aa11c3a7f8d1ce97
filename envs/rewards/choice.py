"""Multiple choice: which one a task says is right, and which one a reply commits to."""

import operator
import re
import string
from typing import Any

from agar.envs.rewards.answers import Score
from agar.envs.rewards.extract import Extract, boxed, several_boxed, whole
from agar.envs.rubric import Conversation
from agar.errors import EnvError

_LETTERS = string.ascii_uppercase

_SAID = re.compile(r"\b(?:answer|choice|option)\W{0,3}\s*(?:(?:is|must be|should be)\b|:|=)", re.IGNORECASE)
_PICKED = re.compile(r"\b(?:option|choice|pick|choose|it is|it['\u2019]s)\s+(?=\W?[A-Z]\b)", re.IGNORECASE)
_LATEX = re.compile(r"\\(?:text\w*|math\w*)\s*\{([^{}]*)\}")
_REASON = re.compile(r"\b(?:because|since)\b", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:not|never|neither|nor|except|wrong)\b|n['\u2019]t\b", re.IGNORECASE)
_ONE = re.compile(r"[\W_]*([A-Za-z])[\W_]*")
_LABEL = re.compile(r"^\W*[A-Z]\s*(?:[.:)\]*]|is (?:the )?(?:right|correct|best|answer)\b)")
_NAMED = re.compile(
    r"(?<![\w'\u2019])(?:(?!I\b(?:['\u2019]|\s+(?!or\b|and\b)[a-z]))[A-Z]|[b-z])(?!['\u2019]?\w)|"
    r"(?:\bor|\band|[&,/|+;(])\s*(?:maybe\s+|perhaps\s+)?a(?!['\u2019]?\w)"
)
"""Letters that stand alone: not the pronoun, and a small "a" only where another letter may be listed."""
_ARTICLE = re.compile(r"\bA\s+(?!is\b|was\b|or\b|and\b)[a-z]")


def multiple_choice(gold: str = "answer", *, choices: str = "choices", extract: Extract = whole) -> Score:
    r"""1 if the answer commits to the right choice, else 0; an answer that names several at once is wrong.

    The right one is a number (from 0, as in MMLU), a letter, or its text among `choices`; a list of them: each is
    right. In the reply it is the last `\boxed{B}`, or what follows the last "answer is", or a letter on the last or
    first line, or the choice's own text. A task whose right choice is none of its choices, or could be two, cannot be
    graded (`EnvError`).

    Args:
        gold: the entry of the task's payload that holds the right choice.
        choices: the entry that lists the choices' texts, where there is one.
        extract: finds the answer in the reply.
    """

    def score(told: Conversation) -> float:
        texts = _texts(told, choices)
        right = _right(told, gold, texts)
        said = extract(told.reply)
        return float(said is not None and _chosen(said, texts) in right)

    return score


def _texts(told: Conversation, name: str) -> list[str]:
    found = told.task.payload.get(name)
    if found is None:
        return []
    if not isinstance(found, (list, tuple)) or not 0 < len(found) <= len(_LETTERS):
        got = f"{len(found)} of them" if isinstance(found, (list, tuple)) else f"a {type(found).__name__}"
        raise EnvError(
            f"task {told.task.key!r} has no choices in {name!r}: expected a list of 1 to 26 texts, got {got}"
        )
    return [str(text) for text in found]


def _right(told: Conversation, name: str, texts: list[str]) -> set[str]:
    value = told.task.payload.get(name)
    every = list(value) if isinstance(value, (list, tuple)) else [value]
    found = set()
    for each in every:
        places = _places(each, texts)
        if len(places) != 1 or not 0 <= min(places) < (len(texts) or len(_LETTERS)):
            could = " or ".join(_LETTERS[place] for place in sorted(places)) if len(places) > 1 else ""
            raise EnvError(
                f"task {told.task.key!r}: {name} = {each!r} {f'could be {could}' if could else 'is none'} of the "
                f"choices {texts or 'A to Z'}: expected a number from 0, a letter, or the text of one"
            )
        found |= {_LETTERS[place] for place in places}
    if not found:
        raise EnvError(f"task {told.task.key!r} has no right choice in {name!r}: expected a number, a letter or a text")
    return found


def _places(value: Any, texts: list[str]) -> set[int]:
    """Every choice that an answer could mean: a text that is a letter or a number too may mean two."""
    if not isinstance(value, str):
        try:
            return set() if isinstance(value, bool) else {operator.index(value)}
        except TypeError:
            return set()
    places = {place for place, text in enumerate(texts) if text == value}
    if (letter := _ONE.fullmatch(value)) is not None:
        places.add(_LETTERS.index(letter[1].upper()))
    elif value.isascii() and value.isdecimal():
        places.add(int(value))
    return {place for place in places if place < (len(texts) or len(_LETTERS))}


def _chosen(said: str, texts: list[str]) -> str | None:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if several_boxed(said):
        return None
    if (box := boxed(said)) is not None:
        return _committed(_LATEX.sub(r"\1", box), texts)
    if (text := _text(said, texts)) is not None:
        return text
    for at in reversed(range(len(lines))):
        if (mark := _SAID.search(lines[at])) is not None:
            rest = lines[at][mark.end() :].strip(" *:")
            return _committed(" ".join([rest] if rest else lines[at + 1 : at + 2]), texts)
    found = {_of_line(line, texts) for line in (*lines[-1:], *lines[:1])} - {None}
    return next(iter(found)) if len(found) == 1 else None


def _of_line(line: str, texts: list[str]) -> str | None:
    """What a line chooses that begins with a letter, or picks one."""
    if (picked := _PICKED.search(line)) is not None:
        return _committed(line[picked.end() :], texts)
    return _committed(line, texts) if _ONE.fullmatch(line) or _LABEL.match(line) else _text(line, texts)


def _committed(statement: str, texts: list[str]) -> str | None:
    """The one choice that a statement names; None where it names several, or denies one."""
    if (one := _ONE.fullmatch(statement)) is not None:
        return one[1].upper()
    if (text := _text(statement, texts)) is not None:
        return text
    for letter, text in zip(_LETTERS, texts, strict=False):
        statement = re.sub(rf"\b({letter}\W{{1,4}}){re.escape(text)}(?!\w)", r"\1", statement, flags=re.IGNORECASE)
    statement = _REASON.split(statement)[0]
    named: set[str] = {found.strip()[-1].upper() for found in _NAMED.findall(statement)}
    for letter, text in zip(_LETTERS, texts, strict=False):
        if len(text) > 1 and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", statement, re.IGNORECASE):
            named.add(letter)
    if len(named) != 1 or _DENIED.search(statement) or _ARTICLE.search(statement):
        return None
    return named.pop()


def _text(said: str, texts: list[str]) -> str | None:
    """The letter of the choice whose text this is."""
    named = [place for place, text in enumerate(texts) if _bare(text) == _bare(said)]
    return _LETTERS[named[0]] if len(named) == 1 and not _ONE.fullmatch(said) else None


def _bare(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .*$")
