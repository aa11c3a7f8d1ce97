"""How many model calls are under way, and how many may be."""

from agar.rollout.gateway.call import BusyError


class InFlight:
    """Counts generations under way; refuses more than its limit, and more than those around it allow.

    Args:
        what: whose calls they are, for the refusal.
        limit: the most at a time.
        around: a wider count that these belong to.

    Attributes:
        limit: the most at a time.
        most: the same, by the limits around it too.
        now: under way.
        refused: calls refused so far, by this limit or another.
    """

    def __init__(self, what: str, limit: int, around: "InFlight | None" = None) -> None:
        self.limit, self.now, self.refused = limit, 0, 0
        self._what = what
        self._all: tuple[InFlight, ...] = (self, *(around._all if around is not None else ()))
        self.most = min(at.limit for at in self._all)

    def enter(self, count: int) -> None:
        """Begin `count` generations.

        Raises:
            BusyError: there is no room for them now.
        """
        for at in self._all:
            if at.now + count > at.limit:
                for told in self._all:
                    told.refused += 1
                raise BusyError(f"{at.now} of {at.limit} calls of {at._what} are under way: try again in a moment")
        for at in self._all:
            at.now += count

    def leave(self, count: int) -> None:
        """End `count` generations."""
        for at in self._all:
            at.now -= count
