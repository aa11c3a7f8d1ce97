"""A blocking call in a thread that can be given up."""

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
import warnings

import pytest

from agar.tool_servers.background import DaemonThread, contained, in_task, in_thread

WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("WHERE", default="nowhere")


async def test_it_gives_the_result_from_a_thread_that_knows_the_context():
    WHERE.set("here")
    assert await in_thread(WHERE.get, name="a") == "here"
    assert await in_thread(lambda: threading.current_thread().name, name="some name") == "some name"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(ValueError("x"), ValueError), (StopIteration(), RuntimeError), (SystemExit(3), RuntimeError)],
)
async def test_it_raises_what_the_call_raised_but_ends_nothing(raised, expected):
    def call():
        raise raised

    with pytest.raises(expected):
        await in_thread(call, name="a")


async def test_more_calls_may_block_at_once_than_the_machine_has_cores():
    barrier = threading.Barrier(64)
    await asyncio.wait_for(asyncio.gather(*(in_thread(barrier.wait, name="a") for _ in range(64))), 20)


async def test_a_call_that_was_given_up_harms_nobody_when_it_ends():
    release = threading.Event()
    call = in_thread(release.wait, name="a")
    call.cancel()
    release.set()
    await asyncio.sleep(0.05)
    assert call.cancelled()


def test_the_process_ends_though_a_call_hangs():
    code = (
        "import asyncio, time\n"
        "from agar.tool_servers.background import DaemonThread, in_thread\n"
        "async def main():\n"
        "    hangs = in_thread(lambda: time.sleep(600), name='a')\n"
        "    await asyncio.wait({hangs}, timeout=0.1)\n"
        "asyncio.run(main())\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=40)
    assert time.monotonic() - began < 30


async def test_a_thread_runs_its_calls_one_after_the_other_and_ends_when_it_is_told_to():
    thread, entered, go = DaemonThread(name="mine"), threading.Event(), threading.Event()

    def first():
        entered.set()
        go.wait(20)
        return threading.get_ident()

    slow, quick = thread.run(first), thread.run(threading.get_ident)
    await asyncio.to_thread(entered.wait, 20)
    assert not quick.done()
    go.set()
    assert await slow == await quick != threading.get_ident()
    thread.stop()
    thread.stop()
    await ended("mine")
    assert await thread.run(lambda: "again") == "again"


async def test_the_calls_given_before_the_stop_still_run():
    thread, go = DaemonThread(name="stopping"), threading.Event()
    calls = [thread.run(lambda: go.wait(20)), thread.run(lambda: "last")]
    thread.stop()
    go.set()
    assert await asyncio.gather(*calls) == [True, "last"]
    await ended("stopping")


async def test_a_thread_that_nobody_holds_any_more_ends():
    thread = DaemonThread(name="forgotten")
    await thread.run(lambda: None)
    del thread
    await ended("forgotten")


async def test_a_call_that_is_given_up_before_its_turn_is_left_out_and_one_that_runs_goes_on():
    thread, entered, go, log = DaemonThread(name="queue"), threading.Event(), threading.Event(), []

    def first():
        entered.set()
        go.wait(20)
        log.append("first")

    running, waiting = thread.run(first), thread.run(lambda: log.append("second"))
    await asyncio.to_thread(entered.wait, 20)
    assert thread.busy
    running.cancel()
    waiting.cancel()
    await asyncio.sleep(0)
    assert thread.busy, "though its caller has gone"
    go.set()
    await thread.run(lambda: log.append("third"))
    assert log == ["first", "third"]
    thread.stop()
    await ended("queue")
    assert not thread.busy


async def test_the_thread_after_a_stop_waits_for_the_one_before_it():
    thread, entered, go, log = DaemonThread(name="twice"), threading.Event(), threading.Event(), []

    def first():
        entered.set()
        go.wait(20)
        log.append("first")

    calls = [thread.run(first), thread.run(lambda: log.append("second"))]
    await asyncio.to_thread(entered.wait, 20)
    thread.stop()
    calls.append(thread.run(lambda: log.append("third")))
    done, _ = await asyncio.wait(calls, timeout=0.05)
    assert not done
    go.set()
    await asyncio.gather(*calls)
    assert log == ["first", "second", "third"]


def test_whoever_has_a_result_does_not_find_the_thread_busy_with_it():
    thread, go, told, seen = DaemonThread(name="busy"), threading.Event(), threading.Event(), []

    def look(_):
        seen.append(thread.busy)
        told.set()

    future = thread.submit(lambda: go.wait(20))
    future.add_done_callback(look)
    go.set()
    assert told.wait(20)
    assert seen == [False]


async def test_calls_in_one_context_see_what_those_before_them_set():
    thread, context = DaemonThread(name="context"), contextvars.copy_context()
    await thread.run(lambda: WHERE.set("inside"), context=context)
    assert await thread.run(WHERE.get, context=context) == "inside"
    assert await thread.run(WHERE.get) == "nowhere"


def test_a_caller_without_a_loop_waits_for_the_call_itself():
    thread = DaemonThread(name="plain")
    assert thread.submit(lambda: "done").result(20) == "done"

    def leave():
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match=r"raised SystemExit\(3\)"):
        thread.submit(leave).result(20)


def test_the_next_loop_is_not_held_up_by_a_call_that_the_last_one_gave_up():
    thread, go = DaemonThread(name="loops"), threading.Event()

    async def give_up():
        await asyncio.wait({thread.run(lambda: go.wait(20))}, timeout=0.01)

    async def again():
        return await thread.run(lambda: "again")

    asyncio.run(give_up())
    go.set()
    assert asyncio.run(asyncio.wait_for(again(), 20)) == "again"


class Odd(BaseException):
    """Neither an Exception nor a wish to end anything."""


async def raises(error):
    raise error


async def cancels_a_task_of_its_own():
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


@pytest.mark.parametrize(
    ("work", "complaint"),
    [
        (lambda: raises(SystemExit(3)), r"raised SystemExit\(3\)"),
        (lambda: raises(Odd("x")), r"raised Odd\('x'\)"),
        (lambda: raises(asyncio.CancelledError()), "raised CancelledError, though nobody outside"),
        (cancels_a_task_of_its_own, "raised CancelledError, though nobody outside"),
    ],
)
async def test_what_would_end_the_caller_or_the_loop_is_an_error_like_any_other(work, complaint):
    with pytest.raises(RuntimeError, match=complaint):
        await contained(work())
    async with asyncio.TaskGroup() as group:  # in a task of somebody's, too
        task = group.create_task(asyncio.wait_for(_told(work), 20))
    assert "raised" in task.result()


async def _told(work):
    try:
        await contained(work())
    except RuntimeError as error:
        return str(error)


async def cancels_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(60)


@pytest.mark.parametrize("work", [cancels_itself, cancels_a_task_of_its_own, lambda: raises(SystemExit(3))])
async def test_code_in_a_task_of_its_own_may_cancel_even_that(work):
    with pytest.raises(RuntimeError, match="raised"):
        await in_task(work(), name="a")


async def test_code_in_a_task_of_its_own_ends_with_whoever_waits_for_it():
    inside, ended_too = asyncio.Event(), asyncio.Event()

    async def work():
        try:
            inside.set()
            await asyncio.sleep(60)
        finally:
            ended_too.set()

    task = asyncio.create_task(in_task(work(), name="a"))
    await inside.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert ended_too.is_set()


async def test_what_it_raises_otherwise_passes_as_it_is():
    with pytest.raises(KeyError, match="bug"):
        await contained(raises(KeyError("bug")))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await contained(asyncio.sleep(60))


async def test_a_task_that_is_cancelled_from_outside_ends_at_once():
    inside = asyncio.Event()

    async def work():
        inside.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(contained(work()))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_cleaning_up_under_cancellation_is_contained_as_well():
    seen = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            try:
                await contained(cancels_a_task_of_its_own())
            except RuntimeError as error:
                seen.append(error)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert len(seen) == 1


async def ended(name):
    """Wait until the threads of this name have ended."""
    for thread in [thread for thread in threading.enumerate() if thread.name == name]:
        await asyncio.to_thread(thread.join, 20)
        assert not thread.is_alive()


async def test_what_is_called_off_before_it_begins_is_not_complained_about():
    async def work():
        raise AssertionError("it began")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        caller = asyncio.create_task(in_task(work(), name="a"))
        await asyncio.sleep(0)  # it has made the task, whose first step is still to come
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        del caller
    assert said == []
