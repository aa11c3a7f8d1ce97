"""A blocking call in a thread that can be given up."""

import asyncio
import contextvars
import subprocess
import sys
import threading
import time

import pytest

from agar.tool_servers.background import DaemonThread, in_thread

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


async def ended(name):
    """Wait until the threads of this name have ended."""
    for thread in [thread for thread in threading.enumerate() if thread.name == name]:
        await asyncio.to_thread(thread.join, 20)
        assert not thread.is_alive()
