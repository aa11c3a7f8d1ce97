import asyncio
from contextlib import asynccontextmanager

import pytest

from agar.errors import DeadlineError, EngineError
from agar.rollout.engines.gate import Gate


@asynccontextmanager
async def inside(gate, timeout_s):
    version = await gate.enter(timeout_s)
    try:
        yield version
    finally:
        gate.leave()


async def test_closed_gate_holds_new_calls_and_lets_those_inside_finish():
    gate, order = Gate(version=1), []

    async def call(name, seconds):
        async with inside(gate, 5) as version:
            await asyncio.sleep(seconds)
            order.append((name, version))

    first = asyncio.create_task(call("first", 0.05))
    await asyncio.sleep(0)
    gate.close()
    second = asyncio.create_task(call("second", 0))
    assert not await gate.emptied(0.01)
    assert await gate.emptied(1)
    assert order == [("first", 1)]
    gate.open(2)
    await asyncio.gather(first, second)
    assert order == [("first", 1), ("second", 2)]


async def test_waiting_at_a_closed_gate_has_a_deadline_that_names_the_publish():
    gate = Gate(version=1)
    gate.close()
    with pytest.raises(DeadlineError, match="weight publish"):
        async with inside(gate, 0.01):
            pass
    assert gate.inside == 0


async def test_broken_gate_refuses_until_it_is_repaired():
    gate = Gate()
    gate.close()
    gate.break_with(EngineError("publish 3 failed"))
    with pytest.raises(EngineError, match="publish 3"):
        async with inside(gate, 1):
            pass
    gate.open(4)
    with pytest.raises(EngineError, match="publish 3"):
        async with inside(gate, 1):
            pass
    gate.repair()
    async with inside(gate, 1) as version:
        assert version == 4


async def test_gate_that_is_broken_for_good_is_not_repaired():
    gate = Gate()
    gate.break_with(EngineError("keeper failed"), for_good=True)
    gate.break_with(EngineError("publish 3 failed"))
    gate.repair()
    with pytest.raises(EngineError, match="keeper failed"):
        async with inside(gate, 1):
            pass


async def test_a_gate_that_closes_again_at_once_lets_nobody_slip_in():
    gate = Gate(version=1)
    gate.close()

    async def call():
        async with inside(gate, 5) as version:
            return version

    waiting = asyncio.create_task(call())
    await asyncio.sleep(0)
    gate.open(2)
    gate.close()
    await asyncio.sleep(0.01)
    assert not waiting.done()
    gate.open(3)
    assert await waiting == 3
