"""How much may be under way at a time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.exceptions import HTTPException

from agar.tool_servers.meter import Meter


class Room:
    """Places for requests that start work.

    Args:
        places: how many there are.
        meter: counts those that are taken, and requests that found none.
    """

    def __init__(self, places: int, meter: Meter) -> None:
        self._places, self._meter = places, meter
        self._free = asyncio.Semaphore(places)

    @contextlib.asynccontextmanager
    async def place(self, route: str, *, patience_s: float = 0.0) -> AsyncIterator[None]:
        """Take a place for as long as the context lasts.

        Args:
            route: who asks, for the meter.
            patience_s: how long to wait for one, in seconds: for callers that do not ask again.

        Raises:
            HTTPException: 429, there is none.
        """
        try:
            if self._free.locked() and not patience_s:
                raise TimeoutError
            async with asyncio.timeout(patience_s or None):
                await self._free.acquire()
        except TimeoutError as error:
            self._meter.busy(route)
            said = f"{self._places} calls are under way, as many as may be: try again in a moment"
            raise HTTPException(429, said, headers={"retry-after": "1"}) from error
        try:
            with self._meter.under_way():
                yield
        finally:
            self._free.release()
