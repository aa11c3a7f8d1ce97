"""One loop in one thread, for whoever calls."""

import asyncio
import threading

import pytest

from agar.envs.driver import LoopThread
from agar.errors import DeadlineError, EnvError


@pytest.fixture
def driver():
    made = LoopThread("test-driver")
    yield made
    made.close()


async def where():
    return asyncio.get_running_loop(), threading.current_thread().name


def run(driver, work, timeout_s=5.0):
    return driver.run(work, timeout_s=timeout_s, what="the test's work")


def test_every_call_runs_on_the_same_loop_in_the_named_thread(driver):
    assert run(driver, where()) == run(driver, where())
    assert run(driver, where())[1] == "test-driver"


def test_what_raises_raises_here(driver):
    async def fail():
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        run(driver, fail())


def test_a_passed_deadline_names_the_work_and_cancels_it(driver):
    cancelled = threading.Event()

    async def hang():
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(DeadlineError, match=r"the test.s work gave no result within 0\.05 s"):
        run(driver, hang(), timeout_s=0.05)
    assert cancelled.wait(5)


def test_closing_cancels_what_is_left_and_ends_the_thread():
    driver = LoopThread("test-driver")
    cancelled = threading.Event()

    async def leave_behind():
        async def hang():
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

        driver.left = asyncio.create_task(hang())
        await asyncio.sleep(0)

    run(driver, leave_behind())
    driver.close()
    driver.close()
    assert cancelled.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "test-driver"]


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError()])
def test_what_would_end_the_loop_ends_only_the_call(driver, raised):
    async def leave():
        raise raised

    with pytest.raises(RuntimeError, match=f"raised {type(raised).__name__}"):
        run(driver, leave())
    assert run(driver, where())[1] == "test-driver"


def test_work_that_cancels_its_own_task_is_named(driver):
    async def work():
        asyncio.current_task().cancel()
        await asyncio.sleep(60)

    with pytest.raises(EnvError, match=r"the test.s work was cancelled by its own code"):
        run(driver, work())


def test_nobody_waits_on_a_loop_that_a_task_has_ended(driver):
    async def leave():
        raise SystemExit(3)

    async def makes_one():
        made = asyncio.create_task(leave())
        made.add_done_callback(lambda task: task.exception())  # seen
        await asyncio.sleep(60)

    complaint = r"test-driver has ended \(a task that was made in it raised SystemExit\(3\)\)"
    with pytest.raises(EnvError, match=complaint):
        run(driver, makes_one(), timeout_s=30)
    assert driver.ended
    with pytest.raises(EnvError, match=complaint):
        run(driver, where(), timeout_s=30)
