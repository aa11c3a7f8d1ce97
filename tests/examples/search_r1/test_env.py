"""Episodes: with the library in this process, and with servers that work, fail, dawdle and lie."""

import asyncio
import contextlib

import pytest

import agar
from agar.agents.scripted import ScriptedAgent
from agar.envs import as_async
from agar.errors import ConfigError
from agar.examples.search_r1 import agents, corpus
from agar.examples.search_r1.env import SearchR1, answering, search_for
from agar.tool_servers.config import ServerConfig
from agar.tool_servers.search.config import IndexSource, SearchConfig
from agar.tool_servers.search.service import Search
from agar.tool_servers.server import ToolServer
from agar.types import Outcome, ToolCall, Turn

pytestmark = pytest.mark.timeout(180)  # the first one to ask makes the corpus

ENV = "agar.examples.search_r1.env:SearchR1-v0"
HELDOUT = 128


async def rewards(policy, **kwargs):
    heldout, found = corpus.tasks("heldout"), []
    async with as_async(agar.make(ENV, **kwargs)) as env:
        for number in range(HELDOUT):
            found.append((await ScriptedAgent(policy).transcript(env, heldout[number])).reward)
    return found


async def test_gold_earns_all_and_doing_nothing_earns_nothing():
    heldout = corpus.tasks("heldout")
    async with as_async(agar.make(ENV)) as env:
        for number in range(HELDOUT):
            await env.areset(options={"task": heldout[number]})
            done, reward = False, 0.0
            while not done:
                turn = await env.agold()
                assert turn is not None
                _, reward, done, _, info = await env.astep(turn)
            assert reward == info["reward_parts"]["exact"] == info["reward_parts"]["form"] == 1.0
            assert info["reward_parts"]["searches"] == len(heldout[number].payload["hops"])
    for said in ("", "<answer></answer>", "<answer>I do not know</answer>"):
        assert set(await rewards(lambda *_, said=said: Turn(text=said))) == {0.0}


async def test_the_searcher_finds_every_answer_as_the_tiny_policy_sees_it_and_one_who_gives_up_does_not():
    tiny = {"count": 1, "text_chars": 106, "told": "Search."}
    assert set(await rewards(agents.searcher(), **tiny)) == {1.0}
    mean = sum(await rewards(agents.searcher(give_up=0.65), **tiny)) / HELDOUT
    assert 0.1 < mean < 0.45
    assert sum(await rewards(agents.searcher(give_up=1.0), **tiny)) == 0


async def test_a_model_without_tools_searches_by_tags():
    task = next(
        row for row in map(corpus.tasks("heldout").__getitem__, range(HELDOUT)) if len(row.payload["hops"]) == 2
    )
    async with as_async(agar.make(ENV, tags=True)) as env:
        system, _ = (await env.areset(options={"task": task}))[0]
        assert env.tools == ()
        assert "<search>" in system.text
        reward = 0.0
        for turn in range(3):
            gold = await env.agold()
            assert gold is not None
            found, reward, done, _, info = await env.astep(gold)
            assert done == (turn == 2)
            assert [message.role for message in found] == ["user"] * (turn < 2)
        assert (reward, info["reward_parts"]["exact"]) == (1.0, 1.0)


async def test_examples_stand_before_the_question_and_are_not_graded():
    said = ["Which module has `sqrt`?", "<search>sqrt</search>", "It is in `math`.", "<answer>math</answer>"]
    async with as_async(agar.make(ENV, tags=True, examples=said)) as env:
        asked, _ = await env.areset(options={"task": corpus.tasks("heldout")[0]})
        assert [message.role for message in asked] == ["system", *("user", "assistant") * 2, "user"]
        assert [message.text for message in asked[1:-1]] == said
        turn = await env.agold()
        assert turn is not None
        assert "<search>" in turn.text, "gold counts its own turns alone"
        _, reward, done, _, info = await env.astep(Turn(text="<answer>?</answer>"))
    assert (reward, done, info["reward_parts"]["searches"]) == (0.0, True, 0.0)
    with pytest.raises(ConfigError, match="end with the assistant, got 1"):
        SearchR1(examples=["Which module has `sqrt`?"])


async def test_several_tags_are_several_searches_and_none_is_an_answer():
    async with as_async(agar.make(ENV, tags=True)) as env:
        await env.areset(options={"task": corpus.tasks("heldout")[0]})
        found, *_ = await env.astep("<search>json</search> and\n<search>\ntextwrap </search><answer>x</answer>")
        assert len(found) == 2
        assert all(message.text.startswith("[1]") for message in found)
        _, reward, done, _, _ = await env.astep("I do not know <search>")
        assert (reward, done) == (0.0, True)


async def test_a_reset_without_a_task_asks_what_its_own_library_answers():
    async with as_async(agar.make("agar.examples.search_r1.env:InventedR1-v0")) as env:
        for seed in range(5):
            asked, _ = await env.areset(seed=seed)
            assert (await env.areset(seed=seed))[0] == asked
            done, reward = False, 0.0
            while not done:
                turn = await env.agold()
                assert turn is not None
                _, reward, done, _, _ = await env.astep(turn)
            assert reward == 1.0


async def test_the_agent_is_told_of_searches_that_cannot_be_made():
    task = corpus.tasks("heldout")[0]
    async with as_async(agar.make(ENV)) as env:
        await env.areset(options={"task": task})
        calls = (
            ToolCall(id="1", name="search", arguments={"q": "x"}),
            ToolCall(id="2", name="search", arguments={"query": ""}),
            ToolCall(id="3", name="look", arguments={}),
            ToolCall(id="4", name="search", arguments={"query": "x" * 5000}),
        )
        messages, *_ = await env.astep(Turn(tool_calls=calls))
        said = [message.text for message in messages]
    assert "query: Field required" in said[0]
    assert said[1] == "nothing found"
    assert "no tool 'look'" in said[2]
    assert "4000 characters" in said[3]


async def test_a_search_server_gives_the_same_episode():
    task = corpus.tasks("heldout")[0]
    source = IndexSource(folder=corpus.cached() / "index-0")
    service = Search(SearchConfig(source=source, count=3, text_chars=600))

    async def played(**kwargs):
        async with as_async(agar.make(ENV, **kwargs)) as env:
            return await ScriptedAgent(agents.searcher()).transcript(env, task)

    async with ToolServer(service, ServerConfig(port=0)) as server:
        there = await played(server=server.url)
    here = await played()
    assert there.messages == here.messages
    assert there.reward == here.reward == 1.0
    assert there.tools == here.tools


@contextlib.asynccontextmanager
async def falling_silent(answer):
    """A tool server that is fine until a tool is called, and then gives an answer of its own, or None: none at all."""
    source = IndexSource(folder=corpus.cached() / "index-0")
    async with ToolServer(Search(SearchConfig(source=source)), ServerConfig(port=0)) as server:
        port = int(server.url.rpartition(":")[2])

        async def serve(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"POST"):
                if answer is None:
                    await reader.read()
                else:
                    writer.write(answer)
                    await writer.drain()
            else:
                upstream, into = await asyncio.open_connection("127.0.0.1", port)
                into.write(head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
                writer.write(await upstream.read())
                await writer.drain()
                into.close()
            writer.close()

        front = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{front.sockets[0].getsockname()[1]}"
        finally:
            front.close()


_REPLY = b"HTTP/1.1 %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"\xff\xfe garbage \x00\r\n\r\n",
        _REPLY % (b"200 OK", 6, b"<html>"),
        _REPLY % (b"200 OK", 14, b'{"text": null}'),
        _REPLY % (b"500 Oh", 0, b""),
    ],
    ids=["silent", "hangs up", "no HTTP", "no JSON", "no reply", "status 500"],
)
async def test_a_failing_search_server_excludes_the_episode_and_never_scores_it(answer, monkeypatch):
    monkeypatch.setattr("agar.tool_servers.link.GRACE_S", 0.3)
    monkeypatch.setattr(SearchR1, "tool_timeout_s", 0.3)
    async with falling_silent(answer) as url, as_async(agar.make(ENV, server=url)) as env:
        await env.areset(options={"task": corpus.tasks("heldout")[0]})
        _, reward, terminated, truncated, info = await env.astep(search_for("x", call=0))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["failure"] is Outcome.INFRA_ERROR
    assert not Outcome.INFRA_ERROR.trainable
    assert "/call" in info["failure_reason"]


async def test_a_search_that_takes_too_long_is_told_to_the_agent_and_the_episode_goes_on(monkeypatch):
    async def dawdle(self, queries, *, count):
        await asyncio.sleep(30)

    monkeypatch.setattr("agar.tool_servers.search.index.Index.search", dawdle)
    monkeypatch.setattr(SearchR1, "tool_timeout_s", 0.1)
    task = corpus.tasks("heldout")[0]
    async with as_async(agar.make(ENV)) as env:
        await env.areset(options={"task": task})
        [message], _, terminated, truncated, _ = await env.astep(search_for("x", call=0))
        assert message.text == "error: search: no result within 0.1 s"
        assert not terminated
        assert not truncated
        assert (await env.astep(answering(task.payload["answer"])))[1] == 1.0
