import asyncio

import pytest

from agar.errors import EngineError, SessionClosedError
from agar.rollout.gateway.call import ModelCall, Reply
from agar.rollout.gateway.under_way import UnderWay
from agar.types import Message, Turn

CALL = ModelCall(messages=(Message(role="user", content="Start."),))
REPLY = Reply(id="a", turn=Turn(), node=None, budget=None, prompt_tokens=0, created=0)


async def waiting(under_way, count):
    tasks = [asyncio.create_task(under_way.wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_all_who_wait_get_the_reply_and_one_that_left_does_not_count():
    under_way = UnderWay(CALL)
    under_way.hosted = True
    leaving, *staying = await waiting(under_way, 3)
    assert under_way.callers == 4
    leaving.cancel()
    await asyncio.wait({leaving})
    assert under_way.callers == 3
    under_way.end(REPLY)
    assert [await task for task in staying] == [REPLY, REPLY]


@pytest.mark.parametrize(
    ("error", "told"), [(EngineError("gone"), EngineError), (asyncio.CancelledError(), SessionClosedError)]
)
async def test_all_who_wait_are_told_what_it_failed_with(error, told):
    under_way = UnderWay(CALL)
    tasks = await waiting(under_way, 2)
    under_way.end(None, error)
    await asyncio.wait(tasks)
    assert [type(task.exception()) for task in tasks] == [told, told]


async def test_it_is_given_up_by_others_and_not_by_itself():
    under_way = UnderWay(CALL)
    under_way.task = asyncio.current_task()
    under_way.give_up()
    assert not under_way.given_up
    assert not under_way.done
    under_way.task = asyncio.create_task(asyncio.sleep(60))
    under_way.give_up()
    assert under_way.given_up
    await asyncio.wait({under_way.task})
    assert under_way.done
