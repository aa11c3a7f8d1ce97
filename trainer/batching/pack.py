"""Packing and distribution of rows by length: pack first under a token budget, distribute second.

Both are pure functions of the lengths and deterministic: ties are broken by position.
"""

from collections.abc import Sequence

from agar.errors import ShapeError

ATTENTION_CROSSOVER_TOKENS = 16384
"""Row length at which causal attention costs as much as all matrix products together. With hidden size h the products
cost 24 h^2 and attention 2 h L per token and layer, so it is 12 h; this stands for h between 1k and 2k."""

Bin = tuple[int, ...]
"""Positions of the rows of one micro-batch, ascending."""


def row_cost(length: int) -> float:
    """Relative cost of a row: its length, plus attention's quadratic share."""
    return length * (1 + length / ATTENTION_CROSSOVER_TOKENS)


def pack(lengths: Sequence[int], *, budget: int) -> list[Bin]:
    """Pack rows into as few bins as first-fit decreasing finds.

    Args:
        lengths: length of each row, in tokens, >= 1.
        budget: tokens of a bin. A longer row gets a bin of its own.

    Returns:
        Bins in order of creation; every row in exactly one.

    Raises:
        ShapeError: the budget or a length is below 1.

    Source: first-fit decreasing uses at most 11/9 of the optimal number of bins plus 6/9 (Dosa, 2007).
    """
    if budget < 1 or any(length < 1 for length in lengths):
        raise ShapeError(f"budget and row lengths must be at least 1, got budget {budget} and lengths {list(lengths)}")
    bins: list[list[int]] = []
    room: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        chosen = next((b for b, free in enumerate(room) if lengths[row] <= free), None)
        if chosen is None:
            bins.append([])
            room.append(budget)
            chosen = len(bins) - 1
        bins[chosen].append(row)
        room[chosen] -= lengths[row]
    return [tuple(sorted(members)) for members in bins]


def distribute(bins: Sequence[Bin], lengths: Sequence[int], *, ranks: int) -> list[list[Bin]]:
    """Give every rank the same number of bins with about the same work.

    Bins of several rows are split, the costliest first, until their number divides by `ranks`; where no bin can be
    split any more, ranks are filled up with empty bins. Then the costliest bin goes to the rank with the least work
    that still has a place.

    Args:
        bins: what `pack` gave.
        lengths: length of each row, in tokens.
        ranks: data parallel size, >= 1.

    Returns:
        Per rank its bins, costliest first, equally many; every row in exactly one bin; empty bins are `()`.

    Raises:
        ShapeError: ranks is below 1.
    """
    if ranks < 1:
        raise ShapeError(f"ranks must be at least 1, got {ranks}")
    costs = [row_cost(length) for length in lengths]

    def cost(members: Bin) -> float:
        return sum(costs[row] for row in members)

    even = list(bins)
    while len(even) % ranks:
        splittable = [b for b, members in enumerate(even) if len(members) > 1]
        if not splittable:
            even.append(())
            continue
        widest = max(splittable, key=lambda b: (cost(even[b]), -b))
        even[widest : widest + 1] = _halves(even[widest], costs)
    places = len(even) // ranks
    shares: list[list[Bin]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for members in sorted(even, key=lambda b: (-cost(b), b)):
        rank = min((r for r in range(ranks) if len(shares[r]) < places), key=lambda r: (loads[r], r))
        shares[rank].append(members)
        loads[rank] += cost(members)
    return shares


def _halves(members: Bin, costs: Sequence[float]) -> list[Bin]:
    """Split a bin of several rows in two of about equal cost."""
    left: list[int] = []
    right: list[int] = []
    for row in sorted(members, key=lambda i: (-costs[i], i)):
        smaller = left if sum(costs[i] for i in left) <= sum(costs[i] for i in right) else right
        smaller.append(row)
    return [tuple(sorted(left)), tuple(sorted(right))]
