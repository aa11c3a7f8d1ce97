"""Servers that answer well, late, wrongly or not at all. What the web's API answers is in `wire/`."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agar.errors import ConfigError, ToolServerError
from agar.tool_servers.config import TOKEN_VARIABLE
from agar.tool_servers.search.config import RetrieveSource, WebSource
from agar.tool_servers.search.remote import RetrieveClient, WebSearch

WIRE = Path(__file__).parent / "wire"


class Answers:
    """An HTTP server of one answer, which takes down what it was asked. None never answers."""

    def __init__(self, body: bytes | None, *, status: int = 200) -> None:
        self.body, self.status = body, status
        self.asked: list[tuple[str, dict[str, str], dict[str, object]]] = []

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.asked.append((first, headers, body))
                if self.body is None:
                    await asyncio.sleep(60)
                else:
                    writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (self.status, len(self.body)))
                    writer.write(self.body)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


def retrieve(url: str) -> RetrieveClient:
    return RetrieveClient(RetrieveSource(type="retrieve", url=url, timeout_s=0.1))


async def test_a_search_r1_server_is_asked_as_its_own_clients_ask_it():
    body = {"result": [[{"document": {"id": "12", "contents": '"Mary Rose"\nShe sank.\nIn 1545.'}, "score": 0.83}], []]}
    answers = Answers(json.dumps(body).encode())
    async with answers.serving() as url:
        (hit,), nothing = await retrieve(url + "/").search(["mary rose", "x"], count=3)
    [(first, _, asked)] = answers.asked
    assert first == "POST /retrieve HTTP/1.1"
    assert asked == {"queries": ["mary rose", "x"], "topk": 3, "return_scores": True}
    assert (hit.passage.id, hit.passage.title, hit.passage.text) == ("12", "Mary Rose", "She sank.\nIn 1545.")
    assert hit.score == 0.83
    assert nothing == []


@pytest.mark.parametrize(
    ("variable", "sent"), [(None, None), (TOKEN_VARIABLE, "bearer our own"), ("THEIRS", "bearer their own")]
)
async def test_only_a_token_that_was_named_is_sent(monkeypatch, variable, sent):
    monkeypatch.setenv(TOKEN_VARIABLE, "our own")
    monkeypatch.setenv("THEIRS", "their own")
    answers = Answers(b'{"result": [[]]}')
    async with answers.serving() as url:
        source = RetrieveSource(type="retrieve", url=url, token_variable=variable)
        await RetrieveClient(source).search(["x"], count=1)
    [(_, headers, _)] = answers.asked
    assert headers.get("authorization") == sent


async def test_a_server_that_wants_a_token_gets_none_unless_it_is_named(monkeypatch):
    monkeypatch.delenv("THEIRS", raising=False)
    with pytest.raises(ConfigError, match="set THEIRS"):
        RetrieveClient(RetrieveSource(type="retrieve", url="http://127.0.0.1:1", token_variable="THEIRS"))
    async with Answers(b"{}", status=401).serving() as url:
        with pytest.raises(ToolServerError, match="name the variable that holds it"):
            await retrieve(url).search(["x"], count=1)


async def test_answers_without_scores_and_with_too_many_passages_are_taken():
    body = {"result": [[{"id": n, "contents": f"text {n}"} for n in range(9)]]}
    async with Answers(json.dumps(body).encode()).serving() as url:
        [hits] = await retrieve(url).search(["x"], count=3)
    assert [(hit.passage.id, hit.passage.text) for hit in hits] == [("0", "text 0"), ("1", "text 1"), ("2", "text 2")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Bad gateway</html>", "something else than a RetrieveReply"),
        (b'{"result": "many"}', "something else than a RetrieveReply"),
        (b'{"result": [[{"score": 1}]]}', "something else than a RetrieveReply"),
        (b'{"result": []}', "answered 0 of 1 queries"),
        (b"\xff\xfe\x00", "something else than a RetrieveReply"),
        (b'{"result": [[' + b" " * (9 << 20) + b"]]}", "more than"),
    ],
)
async def test_garbage_is_the_servers_failure(body, said):
    async with Answers(body).serving() as url:
        with pytest.raises(ToolServerError, match=said):
            await retrieve(url).search(["x"], count=3)


@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
async def test_an_error_status_is_the_servers_failure(status):
    async with Answers(b"{}", status=status).serving() as url:
        with pytest.raises(ToolServerError, match=f"status {status}"):
            await retrieve(url).search(["x"], count=3)


async def test_silence_and_absence_end_at_the_deadline(monkeypatch):
    monkeypatch.setattr("agar.tool_servers.link.GRACE_S", 0.1)
    async with Answers(None).serving() as url:
        with pytest.raises(ToolServerError, match=r"no answer within 0\.2 s"):
            await retrieve(url).search(["x"], count=3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(ToolServerError, match="no answer within"):
            await retrieve(f"http://127.0.0.1:{taken.getsockname()[1]}").search(["x"], count=3)


async def test_a_search_engine_is_asked_once_a_query_with_its_key(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    answers = Answers((WIRE / "serper.json").read_bytes())
    async with answers.serving() as url:
        web = WebSearch(WebSource(type="web", url=url, key_variable="MY_KEY"))
        found, blank = await web.search(["what year did the mary rose sink", " "], count=2)
    [(first, headers, asked)] = answers.asked
    assert (first, headers["x-api-key"]) == ("POST /search HTTP/1.1", "secret")
    assert asked == {"q": "what year did the mary rose sink", "num": 2}
    assert [(hit.passage.id, hit.score) for hit in found] == [
        ("https://en.wikipedia.org/wiki/Mary_Rose", 1.0),
        ("https://example.org/why", 0.5),
    ]
    assert (
        found[0].passage.contents == "Mary Rose - Wikipedia\nShe was lost in the Battle of the Solent on 19 July 1545."
    )
    assert blank == []


async def test_a_key_that_is_missing_or_refused_is_named(monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ConfigError, match="set MY_KEY"):
        WebSearch(WebSource(type="web", key_variable="MY_KEY"))
    monkeypatch.setenv("MY_KEY", "wrong")
    async with Answers(b"{}", status=403).serving() as url:
        with pytest.raises(ToolServerError, match="set MY_KEY to the server's"):
            await WebSearch(WebSource(type="web", url=url, key_variable="MY_KEY")).search(["x"], count=1)
