"""A run whose search server fails in the middle of episodes: what is excluded, what goes on, and how it comes back.

Everything is real but the model, which plays by a script: scheduler, gateway, ledger, engine client, HTTP, tool server.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
from tests.end_to_end.tool_outages import ANSWERS, Broken, Killed, Outage, index_in

import agar
from agar.agents.chat import ChatAgent
from agar.envs.tasks import GeneratedTasks, TaskCursor
from agar.ledger.config import RecordPolicy
from agar.ledger.families import Family, family_for
from agar.ledger.toy import write_toy_model
from agar.ledger.trace import Trace
from agar.rollout.attempt import Attempt
from agar.rollout.config import RolloutConfig, TasksConfig
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.fake import FakeEngine
from agar.rollout.episode import EpisodeRunner
from agar.rollout.gateway.server import Gateway
from agar.rollout.scheduler import Scheduler, Stream
from agar.rollout.sources.live import LiveRollouts
from agar.tool_servers.config import ServerConfig
from agar.tool_servers.search.config import IndexSource, RetrieveSource, SearchConfig
from agar.tool_servers.search.index import Index
from agar.tool_servers.search.service import Search
from agar.tool_servers.server import ToolServer
from agar.types import Batch, Message, Outcome, Sampling, TaskRow, ToolCall, Turn

pytest.importorskip("tantivy")

WHOLE = RolloutConfig(tasks_per_step=2, group_size=2, attempt_retries=1, concurrency=4, batch_timeout_s=40)
QUESTION = "Who jumps, and who sleeps?"


class Library(agar.ToolEnv):
    """Two searches lead to the answer."""

    tool_timeout_s = 1.0

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        await super().areset(seed=seed, options=options)
        return QUESTION, {}

    async def answer(self, action: Turn) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", float(action.text == "fox and cat"), True, False, {}


class Reader:
    """The model: searches for the one and the other until it has read of both, and answers with what it has read.

    Attributes:
        read: every tool message that it saw, once.
        look: told of the tool messages of each prompt, before it goes on.
    """

    def __init__(self, family: Family) -> None:
        self._family = family
        self.read: list[str] = []
        self.look: Callable[[Sequence[str]], None] = lambda found: None

    def __call__(self, prompt: Sequence[int], params: Mapping[str, Any]) -> list[int]:
        parts = self._family.tokenizer.decode(prompt).split("<tool_response>\n")[1:]
        found = [part.split("\n</tool_response>")[0] for part in parts]
        self.read += found[-1:]
        self.look(found)
        if not any("fox jumps" in text for text in found):
            return self._search("jumps", len(found))
        if not any("cat sleeps" in text for text in found):
            return self._search("sleeps", len(found))
        return self._say(Message(role="assistant", content="fox and cat"))

    def _search(self, query: str, number: int) -> list[int]:
        call = ToolCall(id=f"call_{number}", name="search", arguments={"query": query})
        return self._say(Message(role="assistant", tool_calls=(call,)))

    def _say(self, message: Message) -> list[int]:
        ids, mask = self._family.transcript([message])
        return [int(id) for id in ids[mask]]


class Run:
    """A rollout that plays.

    Attributes:
        reader: the model.
        played: the traces, in the order in which they ended.
    """

    def __init__(self, live: LiveRollouts, reader: Reader, played: list[Trace], progress: asyncio.Event) -> None:
        self._live, self._progress = live, progress
        self.reader, self.played = reader, played

    @property
    def failed(self) -> list[Trace]:
        return [trace for trace in self.played if not trace.outcome.trainable]

    async def batch(self) -> Batch:
        """The next batch, and then the publish that lets the next groups start."""
        batch = await self._live.next_batch({"main": 0})
        async with self._live.publishing({"main": 0}):
            pass
        return batch

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until the traces are as wanted."""
        async with asyncio.timeout(40):
            while not met():
                self._progress.clear()
                await self._progress.wait()


@contextlib.asynccontextmanager
async def run(family: Family, make_env: Callable[[], agar.ToolEnv]) -> AsyncIterator[Run]:
    reader, played, progress = Reader(family), [], asyncio.Event()
    async with (
        FakeEngine(vocab_size=family.tokenizer.vocabulary_size, script=reader) as engine,
        RouterClient(engine.url) as client,
        Gateway(engines={"main": client}, families={"main": family}) as gateway,
    ):
        runner = EpisodeRunner(
            gateway=gateway,
            agent=ChatAgent(transport="direct", max_turns=200),
            make_env=lambda name, kwargs: make_env(),
            config=WHOLE,
        )

        async def play(attempt: Attempt) -> Trace:
            trace = await runner.play(attempt, Sampling(max_tokens=64))
            played.append(trace)
            progress.set()
            return trace

        tasks = GeneratedTasks(lambda index: TaskRow(key=f"t{index}"), size=1000)
        stream = Stream(TasksConfig(env="Library-v0"), TaskCursor(tasks, seed=0, shuffle=False))
        live = LiveRollouts(
            scheduler=Scheduler(streams=[stream], play=play, config=WHOLE, seed=0),
            boundaries=(),
            record=RecordPolicy(),
            audit="strict",
            families={"main": family},
            closely=4,
        )
        async with live.running():
            yield Run(live, reader, played, progress)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return family_for(write_toy_model(tmp_path_factory.mktemp("toy")))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> IndexSource:
    return index_in(tmp_path_factory.mktemp("library"))


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agar.tool_servers.link.GRACE_S", 1.5)


def outage_of(kind: str, source: IndexSource) -> Killed | Broken:
    return Killed(source) if kind == "killed" else Broken(source, ANSWERS[kind])


def asking(url: str, how: str) -> Callable[[], agar.ToolEnv]:
    """Makes environments whose search is the server's own tool, or one of this process that asks its `/retrieve`."""
    if how == "its tool":
        return lambda: Library(toolboxes=[url])
    search = Search(SearchConfig(source=RetrieveSource(type="retrieve", url=url)))
    return lambda: Library(toolboxes=[search])


def fail_in_the_middle(playing: Run, outage: Outage) -> None:
    """Begin the outage when the first episode has read one answer and is about to ask again: none has both yet."""
    begun = False

    def look(found: Sequence[str]) -> None:
        nonlocal begun
        if found and not begun:
            begun = True
            outage.begin()

    playing.reader.look = look


def check(batch: Batch) -> None:
    """Two groups, which earned what a server that works lets them earn."""
    assert len({sample.group for sample in batch.samples}) == 2
    assert {sample.reward for sample in batch.samples} == {1.0}


OUTAGES = [("its tool", kind) for kind in ("killed", *ANSWERS)] + [("retrieve", "killed"), ("retrieve", "silent")]


@pytest.mark.parametrize(("how", "kind"), OUTAGES)
async def test_a_run_goes_on_when_its_search_server_fails_and_comes_back(family, source, kind, how):
    async with outage_of(kind, source).running() as outage, run(family, asking(outage.url, how)) as playing:
        check(await playing.batch())
        fail_in_the_middle(playing, outage)
        waiting = asyncio.create_task(playing.batch())
        await playing.until(lambda: len({trace.group.ordinal for trace in playing.failed}) >= 4)
        assert not waiting.done(), "no batch is made of episodes without their tools"
        await outage.end()
        batch = await waiting
        check(batch)
        check(await playing.batch())
    assert {trace.outcome for trace in playing.failed} == {Outcome.INFRA_ERROR}
    assert all(outage.url in trace.reason for trace in playing.failed)
    assert any(len(trace.nodes) == 2 for trace in playing.failed), "an episode was under way"
    assert {trace.reward.total for trace in playing.played if trace.outcome.trainable} == {1.0}
    assert batch.metrics["rollout/dropped_groups/no_trainable_attempt"] >= 2
    assert batch.metrics["rollout/failed_attempts/infra_error"] >= 4
    assert batch.metrics["rollout/retried_attempts/infra_error"] >= 4


async def test_a_slow_answer_is_told_to_the_agent_which_asks_again(family, source, monkeypatch):
    slow = asyncio.Event()

    async def dawdle(self: Index, queries: Sequence[str], *, count: int) -> Any:
        if slow.is_set():
            await asyncio.sleep(30)
        return await search(self, queries, count=count)

    search = Index.search
    monkeypatch.setattr(Index, "search", dawdle)
    service = Search(SearchConfig(source=source))
    async with (
        ToolServer(service, ServerConfig(port=0)) as server,
        run(family, lambda: Library(toolboxes=[server.url])) as playing,
    ):
        check(await playing.batch())
        told: list[str] = []

        def look(found: Sequence[str]) -> None:
            slow.set()
            told.extend(text for text in found[-1:] if text.startswith("error"))
            if len(told) >= 4:
                slow.clear()

        playing.reader.look = look
        check(await playing.batch())
    assert set(told) == {"error: search: no result within 1 s"}
    assert {trace.reward.total for trace in playing.played if trace.outcome.trainable} == {1.0}
