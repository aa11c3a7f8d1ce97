"""What is searched for, what is found, and who searches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of a corpus.

    Attributes:
        id: its name in the corpus.
        title: what it is about; may be empty.
        text: what it says.
    """

    id: str
    title: str = ""
    text: str

    @property
    def contents(self) -> str:
        """Title and text as one: what is searched in."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage that was found.

    Attributes:
        passage: the passage.
        score: the better the higher; comparable within one answer of one retriever only.
    """

    passage: Passage
    score: float


class Retriever(Protocol):
    """Finds passages. What it holds is shared: many searches may run at once."""

    async def search(self, queries: Sequence[str], *, count: int) -> list[list[Hit]]:
        """Find passages for several queries.

        Args:
            queries: what is asked; one that says nothing finds nothing.
            count: how many to find for each.

        Returns:
            The hits of each query, the best first; fewer than `count` where no more fit.

        Raises:
            ToolServerError: it cannot be reached, or answers what cannot be understood.
        """
        ...
