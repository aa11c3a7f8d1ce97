"""A score is worked out once, however many ask for it."""

import asyncio

import pytest

from agar.envs.score_cache import ScoreCache


class Judge:
    """Counts how often it is asked; answers when it is told to."""

    def __init__(self, error=None):
        self.asked, self.ended, self.error = 0, 0, error
        self.may_answer = asyncio.Event()

    async def __call__(self):
        self.asked += 1
        try:
            await self.may_answer.wait()
        finally:
            self.ended += 1
        if self.error is not None:
            raise self.error
        return self.asked


async def started(*tasks):
    """Let them come to where they wait."""
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


def asking(cache, judge, count):
    return [asyncio.create_task(cache.get("k", judge)) for _ in range(count)]


async def test_those_who_ask_meanwhile_wait_for_the_same_score():
    cache, judge = ScoreCache(), Judge()
    asked = asking(cache, judge, 5)
    await started()
    judge.may_answer.set()
    assert await asyncio.gather(*asked) == [1] * 5
    assert await cache.get("k", judge) == 1
    assert await cache.get("other", judge) == 2


async def test_a_failure_goes_to_all_who_waited_and_is_not_kept():
    cache, judge = ScoreCache(), Judge(ValueError("once"))
    asked = asking(cache, judge, 3)
    await started()
    judge.may_answer.set()
    assert [str(error) for error in await asyncio.gather(*asked, return_exceptions=True)] == ["once"] * 3
    assert judge.asked == 1
    judge.error = None
    assert await cache.get("k", judge) == 2


async def test_who_is_cancelled_leaves_the_others_their_score():
    cache, judge = ScoreCache(), Judge()
    first, second = asking(cache, judge, 2)
    await started()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    judge.may_answer.set()
    assert await second == 1
    assert judge.asked == 1


async def test_when_nobody_waits_any_more_the_work_ends_and_is_begun_anew():
    cache, judge = ScoreCache(), Judge()
    (only,) = asking(cache, judge, 1)
    await started()
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    assert judge.ended == 1
    judge.may_answer.set()
    assert await cache.get("k", judge) == 2


async def test_the_oldest_makes_room(monkeypatch):
    monkeypatch.setattr("agar.envs.score_cache.KEPT", 1)
    cache, judge = ScoreCache(), Judge()
    judge.may_answer.set()
    assert [await cache.get(key, judge) for key in ("a", "a", "b", "a")] == [1, 1, 2, 3]
