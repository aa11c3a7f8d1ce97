"""The passages of the library, and questions about it whose answers are checked.

A question is kept only if the searches that lead to its answer find the passages that hold it, first of all, in the
index that the agent will search.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agar.envs.rewards.answers import normalise
from agar.examples.search_r1.library import Definition
from agar.tool_servers.search import Passage
from agar.tool_servers.search.index import Index

HELDOUT_SHARE = 3
"""One in this many names is held out: the tiny policy is asked about few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and the way to its answer.

    Attributes:
        text: what is asked.
        kind: `module`, `parameter`, `extends` or `first`.
        about: the name that it is about.
        hops: what to search for, in order.
        found: the passage that each search must find first, by id.
        answer: the right answer.
    """

    text: str
    kind: str
    about: str
    hops: tuple[str, ...]
    found: tuple[str, ...]
    answer: str

    @property
    def split(self) -> str:
        """The split that all questions about the name belong to."""
        digest = hashlib.blake2s(self.about.encode(), digest_size=4).digest()
        return "heldout" if int.from_bytes(digest) % HELDOUT_SHARE == 0 else "train"


def passages(found: Iterable[Definition]) -> Iterator[Passage]:
    """A passage for each definition, and one for each module."""
    firsts: dict[str, str] = {}
    for each in found:
        firsts.setdefault(each.module, each.name)
        facts = f"`{each.name}` is a {each.kind}."
        if each.parameter is not None:
            facts += f" Its first parameter is `{each.parameter}`."
        if each.base is not None:
            facts += f" It extends `{each.base}`."
        # The module comes last: a tiny policy learns to read the last name of a passage long before any other.
        facts += f" It is in `{each.module}`."
        yield Passage(id=f"{each.module}.{each.name}", text=f"{facts} {each.says}".strip())
    for module, name in firsts.items():
        yield Passage(id=module, text=f"`{module}` is a module. Listed first in it is `{name}`.")


def questions(found: Sequence[Definition], index: Index, *, seed: int) -> list[Question]:
    """The questions about some definitions that the index can answer, in an order that the seed fixes.

    Args:
        found: whole modules of what was indexed.
        index: of the passages.
        seed: of the order.
    """
    answerable = _answerable(list(_candidates(found)), index)
    return [answerable[at] for at in np.random.default_rng(seed).permutation(len(answerable))]


def _candidates(found: Sequence[Definition]) -> Iterator[Question]:
    firsts: dict[str, str] = {}
    for each in found:
        firsts.setdefault(each.module, each.name)
    for each in found:
        name, here = each.name, f"{each.module}.{each.name}"
        one = {"about": name, "hops": (f"`{name}`",), "found": (here,)}
        yield Question(text=f"Which module has `{name}`?", kind="module", answer=each.module, **one)  # type: ignore[arg-type]
        if each.parameter is not None:
            text = f"What is the first parameter of `{name}`?"
            yield Question(text=text, kind="parameter", answer=each.parameter, **one)  # type: ignore[arg-type]
        if each.base is not None:
            yield Question(text=f"Which class does `{name}` extend?", kind="extends", answer=each.base, **one)  # type: ignore[arg-type]
        yield Question(
            text=f"What is listed first in the module of `{name}`?",
            kind="first",
            about=name,
            hops=(f"`{name}`", f"module `{each.module}`"),
            found=(here, each.module),
            answer=firsts[each.module],
        )


def _answerable(candidates: Sequence[Question], index: Index) -> list[Question]:
    searches = sorted({hop for question in candidates for hop in question.hops})
    hits = index.search_now(searches, count=1)
    first = {search: found[0].passage.id for search, found in zip(searches, hits, strict=True) if found}
    return [
        question
        for question in candidates
        if tuple(first.get(hop) for hop in question.hops) == question.found and not _given_away(question)
    ]


def _given_away(question: Question) -> bool:
    """Whether the question itself holds the answer."""
    return normalise(question.answer) in normalise(question.text)
