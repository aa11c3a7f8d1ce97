import asyncio

import pytest

from agar.serving.deadlines import Deadlines

LONG_S = 60.0


async def test_a_wait_that_takes_too_long_becomes_a_timeout_and_one_in_time_does_not():
    deadlines = Deadlines(0.02)
    with pytest.raises(TimeoutError), deadlines.within():
        await asyncio.Event().wait()
    assert asyncio.current_task().cancelling() == 0
    with deadlines.within():
        await asyncio.sleep(0)
    with Deadlines(LONG_S).within():
        await asyncio.sleep(0.03)


async def test_every_wait_ends_at_its_own_time_however_many_share_the_timer():
    loop, seconds = asyncio.get_running_loop(), 0.1
    deadlines = Deadlines(seconds)

    async def wait(after_s: float) -> float:
        await asyncio.sleep(after_s)
        began = loop.time()
        with pytest.raises(TimeoutError), deadlines.within():
            await asyncio.Event().wait()
        return loop.time() - began

    took = await asyncio.gather(*[wait(n * 0.03) for n in range(6)])
    assert min(took) >= seconds - 0.001


async def test_a_wait_may_have_less_time_than_the_others_but_not_more():
    deadlines = Deadlines(LONG_S)
    with pytest.raises(TimeoutError), deadlines.within(0.01):
        await asyncio.Event().wait()
    with pytest.raises(TimeoutError), Deadlines(0.01).within(float("inf")):
        await asyncio.Event().wait()
    with pytest.raises(TimeoutError), deadlines.within(0.0):
        await asyncio.Event().wait()


async def test_expire_ends_what_is_under_way_and_counts_it_once():
    deadlines = Deadlines(LONG_S)

    async def wait(seconds: float | None) -> None:
        with deadlines.within(seconds):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(wait(seconds)) for seconds in (None, None, LONG_S / 2)]
    await asyncio.sleep(0)
    assert (deadlines.expire(), deadlines.expire()) == (3, 0)
    assert [type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)] == [TimeoutError] * 3
    assert deadlines.expire() == 0


async def test_a_cancellation_from_outside_stays_one():
    deadlines = Deadlines(LONG_S)

    async def wait() -> None:
        with deadlines.within():
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    deadlines.expire()  # in the same moment: the cancellation is the caller's word, and counts more
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_other_errors_pass():
    with pytest.raises(ZeroDivisionError), Deadlines(LONG_S).within():
        raise ZeroDivisionError


def test_another_event_loop_has_a_timer_of_its_own():
    deadlines = Deadlines(0.01)

    async def once(seconds: float) -> None:
        with deadlines.within():
            await asyncio.sleep(seconds)

    asyncio.run(once(0))  # leaves a timer behind, which dies with its loop
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(once(LONG_S), LONG_S))
