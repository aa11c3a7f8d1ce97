"""How many model calls are under way, and how many may be."""

from agar.rollout.gateway.call import BusyError


class InFlight:
    """Counts generations under way; refuses more than its limit, and more than those around it allow.

    Args:
        what: whose calls they are, for the refusal.
        limit: the most at a time.
        around: a wider count that these belong to.

    Attributes:
        now: under way.
        refused: calls refused so far.
    """

    def __init__(self, what: str, limit: int, around: "InFlight | None" = None) -> None:
        self._what, self.limit, self._around = what, limit, around
        self.now = 0
        self.refused = 0

    def enter(self, count: int) -> None:
        """Begin `count` generations.

        Raises:
            BusyError: there is no room for them now.
        """
        if self.now + count > self.limit:
            self.refused += 1
            raise BusyError(f"{self.now} of {self.limit} calls of {self._what} are under way: try again in a moment")
        if self._around is not None:
            self._around.enter(count)
        self.now += count

    def leave(self, count: int) -> None:
        """End `count` generations."""
        self.now -= count
        if self._around is not None:
            self._around.leave(count)
