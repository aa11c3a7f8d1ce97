"""Waiting for ranks, with plain futures in the place of Ray's."""

import asyncio
import sys

import pytest

from agar.errors import ConfigError, DeadlineError, MissingExtraError, TrainerError
from agar.trainer.config import TrainerConfig
from agar.trainer.ray import ranks as module
from agar.trainer.ray.ranks import Ranks

pytestmark = pytest.mark.ray


@pytest.fixture
def ranks(tmp_path) -> Ranks:
    return Ranks(TrainerConfig(model=tmp_path), policy="p")


def future(outcome: object = None, *, after_s: float = 0.0) -> asyncio.Future:
    answer: asyncio.Future = asyncio.get_running_loop().create_future()

    def give() -> None:
        if answer.cancelled():
            return
        if isinstance(outcome, BaseException):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    asyncio.get_running_loop().call_later(after_s, give)
    return answer


async def test_answers_come_in_rank_order(ranks):
    assert await ranks._ask("count", [future(0, after_s=0.02), future(1)], 1) == [0, 1]


async def test_a_late_rank_is_named_and_the_trainer_stays_broken(ranks):
    with pytest.raises(DeadlineError, match=r"ranks \[1\] did not take step 7 in 0.05 s"):
        await ranks._ask("take step 7", [future(0), future(1, after_s=5)], 0.05)
    with pytest.raises(TrainerError, match=r"failed before: ranks \[1\] did not take step 7"):
        await ranks.all(lambda actor, rank: None, what="anything", deadline_s=1)


async def test_ranks_that_were_never_started_say_so(ranks):
    with pytest.raises(TrainerError, match="'p' was asked to take step 1, but it is not open"):
        await ranks.all(lambda actor, rank: None, what="take step 1", deadline_s=1)


async def test_the_first_failure_ends_the_wait_for_the_others(ranks, monkeypatch):
    start = asyncio.get_running_loop().time()
    monkeypatch.setattr(module, "_GRACE_S", 0.1)
    with pytest.raises(TrainerError, match="rank 1 could not step: OSError: disk; full"):
        await ranks._ask("step", [future(0, after_s=5), future(OSError("disk\n full"))], 10)
    assert asyncio.get_running_loop().time() - start < 4


async def test_an_error_of_ours_keeps_its_class(ranks):
    with pytest.raises(ConfigError, match="no vocabulary"):
        await ranks._ask("start", [future(ConfigError("no vocabulary"))], 1)


async def test_the_rank_that_died_is_named_not_those_whose_collective_it_broke(ranks):
    import ray

    broken, died = future(RuntimeError("connection closed")), future(ray.exceptions.RayActorError(), after_s=0.05)
    with pytest.raises(TrainerError, match="rank 1 could not step"):
        await ranks._ask("step", [broken, died], 10)


async def test_closing_ranks_that_never_opened_needs_nothing(ranks, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match=r"\.\[trainer\]"):
        await ranks.open()
    await ranks.close()
