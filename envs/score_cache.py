"""Scores that were given before, and those that are being worked out: each is asked for once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any

KEPT = 4096
"""Scores that a cache keeps; the oldest go first."""


@dataclass(slots=True)
class _Flight:
    """A score that is being worked out, and how many wait for it."""

    task: asyncio.Task[Any]
    waiting: int = 0


class ScoreCache:
    """Scores by key. Those who ask for one while it is worked out wait for it, in the same event loop.

    A failure is not kept: it goes to all who waited, and the next to ask has it tried again. Who is cancelled leaves
    the others their score; when nobody waits any more, the work is cancelled too.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._flights: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Flight] = {}

    async def get(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The score of a key.

        Args:
            key: what is scored.
            work: works it out, where nobody has.

        Raises:
            Exception: what the work raised.
        """
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        place = (asyncio.get_running_loop(), key)
        flight = self._flights.get(place)
        if flight is None:
            flight = self._flights[place] = _Flight(asyncio.create_task(work(), name="agar-score"))
            flight.task.add_done_callback(lambda task: self._land(place, task))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._forget(place, flight.task)
                flight.task.cancel()
                await asyncio.wait({flight.task})

    def _land(self, place: tuple[asyncio.AbstractEventLoop, Hashable], task: asyncio.Task[Any]) -> None:
        self._forget(place, task)
        if task.cancelled() or task.exception() is not None:
            return
        self._kept[place[1]] = task.result()
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _forget(self, place: tuple[asyncio.AbstractEventLoop, Hashable], task: asyncio.Task[Any]) -> None:
        """Nobody joins this one any more; another for the same key may have begun."""
        flight = self._flights.get(place)
        if flight is not None and flight.task is task:
            del self._flights[place]
