"""Search in an episode, over HTTP, and as programs for Search-R1's server call it."""

import asyncio
from pathlib import Path

import httpx
import pytest

from agar.errors import ConfigError, ToolError, ToolServerError
from agar.tool_servers.client import ToolClient
from agar.tool_servers.config import ServerConfig
from agar.tool_servers.search.config import IndexConfig, IndexSource, RetrieveSource, SearchConfig
from agar.tool_servers.search.service import Search
from agar.tool_servers.server import ToolServer

FOX = "[1] Fox\nThe quick brown fox jumps over the lazy dog."
CONTENTS = '"Fox"\nThe quick brown fox jumps over the lazy dog.'


def service(folder: Path) -> Search:
    return Search(SearchConfig(source=IndexSource(folder=folder), count=1))


async def test_an_agent_searches_in_this_process_and_over_http_alike(index_folder):
    async with service(index_folder).session() as tools:
        here = await tools.call("search", {"query": "fox"}, timeout_s=10)
        with pytest.raises(ToolError, match="4000 characters"):
            await tools.call("search", {"query": "x" * 5000}, timeout_s=10)
    async with (
        ToolServer(service(index_folder), ServerConfig(port=0)) as server,
        ToolClient(server.url).session() as tools,
    ):
        there = await tools.call("search", {"query": "fox"}, timeout_s=10)
    assert here == there == FOX


async def test_a_corpus_is_indexed_when_the_service_first_opens(corpus, tmp_path):
    source = IndexSource(folder=tmp_path / "index", build=IndexConfig(corpus=corpus))
    async with Search(SearchConfig(source=source)) as searching, searching.session() as tools:
        assert "sleeps all day" in await tools.call("search", {"query": "sleeping"}, timeout_s=10)


async def test_a_missing_index_is_said_before_anything_is_served(tmp_path):
    with pytest.raises(ConfigError, match="holds no index"):
        async with ToolServer(service(tmp_path / "nowhere"), ServerConfig(port=0)):
            pass


async def test_the_settings_that_open_an_index_say_where_its_model_runs(index_folder):
    source = IndexSource(folder=index_folder, mode="dense", device="nowhere")
    with pytest.raises(ConfigError, match="cannot run on 'nowhere'"):
        await Search(SearchConfig(source=source)).open()


async def test_programs_written_for_search_r1_get_the_reply_that_they_read(index_folder):
    async with ToolServer(service(index_folder), ServerConfig(port=0)) as server, httpx.AsyncClient() as http:
        body = {"queries": ["fox", "unheard"], "topk": 2, "return_scores": True}
        first, second = (await http.post(f"{server.url}/retrieve", json=body)).json()["result"]
        assert [found["document"]["id"] for found in first] == ["p0", "p2"]
        assert first[0]["document"]["contents"] == CONTENTS
        assert first[0]["score"] > first[1]["score"]
        assert second == []
        plain = (await http.post(f"{server.url}/retrieve", json={"queries": ["fox"]})).json()["result"]
        assert plain == [[{"id": "p0", "contents": CONTENTS}]]
        assert "agar_search_queries 3.0" in (await http.get(f"{server.url}/metrics")).text


async def test_searches_beyond_the_bound_are_told_to_come_again(index_folder):
    searching = service(index_folder)
    entered, go = asyncio.Event(), asyncio.Event()

    class Slow:
        async def search(self, queries, *, count):
            entered.set()
            await go.wait()
            return [[] for _ in queries]

    config = ServerConfig(port=0, calls_in_flight=1)
    async with ToolServer(searching, config) as server, httpx.AsyncClient(base_url=server.url) as http:
        searching._retriever = Slow()
        first = asyncio.create_task(http.post("/retrieve", json={"queries": ["fox"]}))
        await asyncio.wait_for(entered.wait(), 30)
        busy = await http.post("/retrieve", json={"queries": ["fox"]})
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
        go.set()
        assert (await first).json() == {"result": [[]]}
        assert (await http.post("/retrieve", json={"queries": ["fox"]})).status_code == 200


@pytest.mark.parametrize("body", [{}, {"queries": "fox"}, {"queries": ["x"] * 2000}, {"queries": ["x"], "topk": 0}])
async def test_malformed_requests_are_refused(index_folder, body):
    async with ToolServer(service(index_folder), ServerConfig(port=0)) as server, httpx.AsyncClient() as http:
        assert (await http.post(f"{server.url}/retrieve", json=body)).status_code in (400, 422)


async def test_one_server_stands_behind_another(index_folder):
    async with ToolServer(service(index_folder), ServerConfig(port=0)) as server:
        front = Search(SearchConfig(source=RetrieveSource(type="retrieve", url=server.url), count=1))
        async with front.session() as tools:
            assert await tools.call("search", {"query": "fox"}, timeout_s=10) == FOX


async def test_a_deadline_is_the_agents_where_the_search_is_here_and_the_servers_where_another_is_asked(
    index_folder, unused_tcp_port
):
    class Slow:
        async def search(self, queries, *, count):
            await asyncio.sleep(30)

    here = service(index_folder)
    elsewhere = RetrieveSource(type="retrieve", url=f"http://127.0.0.1:{unused_tcp_port}")
    async with here.session() as tools:
        here._retriever = Slow()
        with pytest.raises(ToolError, match=r"search: no result within 0\.2 s"):
            await tools.call("search", {"query": "fox"}, timeout_s=0.2)
    async with ToolServer(Search(SearchConfig(source=elsewhere)), ServerConfig(port=0)) as front:
        for toolbox in (Search(SearchConfig(source=elsewhere)), ToolClient(front.url)):
            async with toolbox.session() as tools:
                with pytest.raises(ToolServerError, match=rf"{elsewhere.url} gave no answer within 0\.2 s"):
                    await tools.call("search", {"query": "fox"}, timeout_s=0.2)
