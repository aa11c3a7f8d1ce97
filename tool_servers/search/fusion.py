"""One ranking from several."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

SOFTENING = 60
"""Added to every rank, so that the first place is not everything."""


def fuse(rankings: Iterable[Sequence[tuple[int, float]]], *, count: int) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: a passage's score is the sum of 1 / (60 + rank) over the rankings that hold it.

    Source: Cormack, Clarke and Buettcher, Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
    Methods (SIGIR 2009).

    Args:
        rankings: each the best first, by number with a score; the scores do not count.
        count: how many to give.

    Returns:
        The best by fused score; of equal ones the lower number first.
    """
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, start=1):
            scores[row] += 1 / (SOFTENING + rank)
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return best[:count]
