"""A context that one task enters and leaves, whoever asks."""

import asyncio
import contextlib

import pytest

from agar.tool_servers.own_task import OwnTask


class Diary:
    """What a context went through, and in which task."""

    def __init__(self, *, fail_at="", hang_at=""):
        self.fail_at, self.hang_at = fail_at, hang_at
        self.tasks = []

    @contextlib.asynccontextmanager
    async def context(self):
        await self._at("enter")
        try:
            yield "value"
        finally:
            await self._at("leave")

    async def _at(self, place):
        self.tasks.append(asyncio.current_task())
        if self.hang_at == place:
            await asyncio.sleep(60)
        if self.fail_at == place:
            raise ValueError(f"at {place}")


async def test_it_is_entered_and_left_by_one_task_that_is_neither_callers():
    diary = Diary()
    own = OwnTask(diary.context(), name="x")
    assert await asyncio.create_task(own.open(timeout_s=5)) == "value"
    await asyncio.create_task(own.close(timeout_s=5))
    await own.close(timeout_s=5)
    entered, left = diary.tasks
    assert entered is left is not asyncio.current_task()
    assert entered.get_name() == "x"


async def test_what_entering_raises_comes_to_who_asked_and_nothing_is_left_running():
    diary = Diary(fail_at="enter")
    with pytest.raises(ValueError, match="at enter"):
        await OwnTask(diary.context(), name="x").open(timeout_s=5)
    assert diary.tasks[0].done()


async def test_one_that_cannot_be_entered_in_time_is_cancelled():
    diary = Diary(hang_at="enter")
    with pytest.raises(TimeoutError):
        await OwnTask(diary.context(), name="x").open(timeout_s=0.05)
    assert diary.tasks[0].done()


async def test_what_leaving_raises_comes_to_who_asked():
    diary = Diary(fail_at="leave")
    own = OwnTask(diary.context(), name="x")
    await own.open(timeout_s=5)
    with pytest.raises(ValueError, match="at leave"):
        await own.close(timeout_s=5)


async def test_one_that_cannot_be_left_in_time_is_cancelled():
    diary = Diary(hang_at="leave")
    own = OwnTask(diary.context(), name="x")
    await own.open(timeout_s=5)
    await own.close(timeout_s=0.05)
    assert diary.tasks[0].done()
