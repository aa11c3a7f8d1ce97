"""The loop's order of things, with parts that only keep a log."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agar.loop import Loop, Progress
from agar.types import Batch, Metrics, Receipt, Receiver, WeightUpdate


class Log(list[str]):
    """What happened, in order."""


class LoggedSource:
    def __init__(self, log: Log, *, batches: int = 10**6) -> None:
        self.log = log
        self.left = batches

    @asynccontextmanager
    async def running(self, batches: int | None = None) -> AsyncIterator[None]:
        self.log.append(f"run for {batches}")
        yield
        self.log.append("halt")

    async def next_batch(self, versions: Mapping[str, int]) -> Batch:
        if self.left == 0:
            await asyncio.sleep(3600)
        self.left -= 1
        self.log.append(f"batch@{versions['main']}")
        return Batch(samples=())

    @asynccontextmanager
    async def publishing(self, versions: Mapping[str, int]) -> AsyncIterator[None]:
        self.log.append("quiet")
        yield
        self.log.append(f"admit@{versions['main']}")

    def state(self) -> bytes:
        return b""

    def load_state(self, state: bytes) -> None: ...


class LoggedTrainer:
    def __init__(self, log: Log) -> None:
        self.log = log

    async def step(self, batch: Batch) -> Metrics:
        self.log.append("step")
        return {"loss": 1.0}

    async def publish(self, to: Receiver, *, version: int) -> Receipt:
        self.log.append(f"publish@{version}")
        return Receipt(version=version, digest="", checksum="", engines=())

    async def save(self, directory: Path) -> None: ...

    async def load(self, directory: Path) -> None: ...


class NoEngines:
    async def receive(self, update: WeightUpdate) -> Receipt:
        raise AssertionError("not used")


def make(log: Log, *, progress: Progress | None = None, batches: int = 10**6, published: bool = True) -> Loop:
    async def at_boundary(step: int, trained: Mapping[str, Metrics], batch: Metrics) -> None:
        log.append(f"boundary{step}")

    return Loop(
        source=LoggedSource(log, batches=batches),
        trainers={"main": LoggedTrainer(log)},
        receivers={"main": NoEngines()} if published else {},
        progress=progress or Progress(),
        at_boundary=at_boundary,
    )


async def test_weights_are_out_before_the_first_batch_and_after_each_step():
    log = Log()
    await make(log).run(2)
    assert log == [
        *["quiet", "publish@0", "admit@0", "boundary0", "run for 2"],
        *["batch@0", "step", "quiet", "publish@1", "admit@1", "boundary1"],
        *["batch@1", "step", "quiet", "publish@2", "admit@2", "boundary2"],
        "halt",
    ]


async def test_a_resumed_run_publishes_its_version_before_anything_else():
    log = Log()
    await make(log, progress=Progress(step=5, versions={"main": 5})).run(6)
    assert log[:5] == ["quiet", "publish@5", "admit@5", "boundary5", "run for 1"]
    assert log.count("step") == 1


async def test_without_receivers_nothing_is_published():
    log = Log()
    await make(log, published=False).run(1)
    assert not [entry for entry in log if entry.startswith("publish")]


@pytest.mark.parametrize("batches", [1, 3])
async def test_stop_while_waiting_for_a_batch_ends_at_the_boundary(batches):
    log = Log()
    loop = make(log, batches=batches)
    running = asyncio.create_task(loop.run(100))
    await asyncio.sleep(0.05)
    loop.stop()
    await asyncio.wait_for(running, 2)
    assert loop.progress.step == batches
    assert loop.progress.versions == {"main": batches}
    assert log[-1] == "halt"


async def test_it_has_ended_before_its_source_is_closed():
    log = Log()
    loop = make(log)
    asked: list[bool] = []

    class Source(LoggedSource):
        @asynccontextmanager
        async def running(self, batches: int | None = None) -> AsyncIterator[None]:
            asked.append(loop.ended)
            yield
            asked.append(loop.ended)

    loop.source = Source(log)
    await loop.run(1)
    assert asked == [False, True]
