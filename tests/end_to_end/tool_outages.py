"""A search server of which something can go wrong in the middle of episodes, and be mended."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from agar.tool_servers.config import ServerConfig
from agar.tool_servers.search.config import IndexConfig, IndexSource, SearchConfig
from agar.tool_servers.search.service import Search
from agar.tool_servers.server import ToolServer

PASSAGES = {"Fox": "The quick brown fox jumps over the lazy dog.", "Cat": "A tabby cat sleeps all day in the sun."}
REPLY = b"HTTP/1.1 %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
ANSWERS = {
    "silent": None,
    "garbage": b"\xff\xfe garbage \x00\r\n\r\n",
    "half a reply": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "another program": REPLY % (b"200 OK", 13, b"<html></html>"),
    "status 502": REPLY % (b"502 Bad Gateway", 0, b""),
}
"""What a broken server says to every request; None never says anything."""


def index_in(folder: Path) -> IndexSource:
    """An index of the passages, built where there is none yet."""
    rows = [{"id": title, "title": title, "text": text} for title, text in PASSAGES.items()]
    corpus = folder / "passages.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return IndexSource(folder=folder / "index", build=IndexConfig(corpus=corpus))


class Outage(Protocol):
    """A server that fails from `begin` to `end`."""

    url: str

    def begin(self) -> None:
        """Let it fail, at once."""

    async def end(self) -> None:
        """Have it work again, where it was."""


class Killed:
    """`agar tools serve search`, in a process of its own that is killed."""

    def __init__(self, source: IndexSource) -> None:
        assert source.build is not None
        self._words = [sys.executable, "-P", "-m", "agar.cli.main", "tools", "serve", "search"]
        self._words += ["--source.type", "index", "--source.folder", str(source.folder)]
        self._words += ["--source.build.corpus", str(source.build.corpus)]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def begin(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(20)
            assert process.stdout is not None
            process.stdout.close()

    async def end(self) -> None:
        async with asyncio.timeout(40):
            said = await asyncio.to_thread(self._start)
        assert " on http://127.0.0.1:" in said, said
        self.url = said.split(" on ")[1].split(";")[0]

    def _start(self) -> str:
        port = self.url.rpartition(":")[2] or "0"
        words = [*self._words, "--server.port", port]
        process = self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ)
        assert process.stdout is not None
        return process.stdout.readline()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Outage]:
        """The server, for as long as the context is open."""
        try:
            await self.end()
            yield self
        finally:
            self.begin()


class Broken:
    """A server behind a front that gives an answer of its own to every request while it is broken.

    Args:
        source: what the server searches.
        answer: that answer; None gives none.
    """

    def __init__(self, source: IndexSource, answer: bytes | None) -> None:
        self._source, self._answer = source, answer
        self._broken = False
        self._port = 0
        self.url = ""

    def begin(self) -> None:
        self._broken = True

    async def end(self) -> None:
        self._broken = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Outage]:
        """The server and its front, for as long as the context is open."""
        async with ToolServer(Search(SearchConfig(source=self._source)), ServerConfig(port=0)) as server:
            self._port = int(server.url.rpartition(":")[2])
            front = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{front.sockets[0].getsockname()[1]}"
            try:
                yield self
            finally:
                front.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(_length(head))
            if self._broken:
                if self._answer is None:
                    await reader.read()  # until the client hangs up
                writer.write(self._answer or b"")
            else:
                writer.write(await self._forward(head[:-2] + b"connection: close\r\n\r\n" + body))
            await writer.drain()
        writer.close()

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0
