"""Signals against a real process's event loop."""

import asyncio
import os
import signal
import time

import pytest

from agar.recipe.interrupt import Interrupted, run_interruptibly


class Asked:
    """A double of what a run is to its signals."""

    def __init__(self, *, graceful: bool = True, closing: bool = False) -> None:
        self.graceful, self.closing = graceful, closing
        self.event = asyncio.Event()

    def stop(self) -> bool:
        self.event.set()
        return self.graceful


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_signal_lets_the_work_end_cleanly():
    asked = Asked()

    async def work() -> str:
        asyncio.get_running_loop().call_later(0.05, kill_me)
        await asked.event.wait()
        return "clean"

    assert run_interruptibly(work, stoppable=asked) == "clean"


def test_closing_may_take_longer_than_the_grace():
    asked = Asked(closing=True)

    async def work() -> str:
        asyncio.get_running_loop().call_later(0.05, kill_me)
        await asked.event.wait()
        await asyncio.sleep(0.5)
        return "closed"

    assert run_interruptibly(work, stoppable=asked, grace_s=0.1) == "closed"


@pytest.mark.parametrize("graceful", [True, False])
def test_work_that_does_not_end_is_cancelled_and_its_contexts_close(graceful):
    closed = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, kill_me)
        try:
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    started = time.monotonic()
    with pytest.raises(Interrupted):
        run_interruptibly(work, stoppable=Asked(graceful=graceful), grace_s=0.2)
    assert closed == [True]
    assert (time.monotonic() - started >= 0.2) == graceful


@pytest.mark.parametrize("signals", [2, 3])
def test_clean_up_is_not_disturbed_by_the_grace_or_by_more_signals(signals):
    closed = []

    async def work() -> None:
        for number in range(signals):
            asyncio.get_running_loop().call_later(0.05 * (number + 1), kill_me)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.5)
            closed.append(True)

    with pytest.raises(Interrupted):
        run_interruptibly(work, stoppable=Asked(), grace_s=0.2)
    assert closed == [True]


def test_a_second_signal_does_not_wait_for_the_grace():
    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, kill_me)
        asyncio.get_running_loop().call_later(0.1, kill_me)
        await asyncio.sleep(60)

    started = time.monotonic()
    with pytest.raises(Interrupted):
        run_interruptibly(work, stoppable=Asked(), grace_s=30)
    assert time.monotonic() - started < 10
