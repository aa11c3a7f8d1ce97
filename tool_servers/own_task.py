"""A context manager in a task of its own, for libraries whose contexts must be left by the task that entered them."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OwnTask(Generic[T]):
    """Enters a context and leaves it again, whoever asks; an episode begins and ends in different tasks.

    Args:
        context: what is entered, once.
        name: of the task, shown in stack dumps.
    """

    def __init__(self, context: AbstractAsyncContextManager[T], *, name: str) -> None:
        self._context, self._name = context, name
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self, *, timeout_s: float) -> T:
        """Enter it.

        Raises:
            TimeoutError: it was not entered within `timeout_s` seconds.
            Exception: what entering it raised.
        """
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._hold(entered), name=self._name)
        either: set[asyncio.Future[Any]] = {self._task, entered}
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not entered.done():
                self._task.result()  # raises: it has ended before it was entered
            return entered.result()
        except BaseException:
            await self._cancel()
            raise

    async def close(self, *, timeout_s: float) -> None:
        """Leave it; one that does not let itself be left within `timeout_s` seconds is cancelled. Idempotent.

        Raises:
            Exception: what leaving it raised, or ended it before.
        """
        if self._task is None:
            return
        self._over.set()
        done, _ = await asyncio.wait({self._task}, timeout=timeout_s)
        if not done:
            await self._cancel()
        task, self._task = self._task, None
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def _hold(self, entered: "asyncio.Future[T]") -> None:
        async with self._context as value:
            entered.set_result(value)
            await self._over.wait()

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
