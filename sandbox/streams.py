"""Bounded reading of a command's output, on the running event loop."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

_CHUNK_BYTES = 1 << 16


async def readable(link: socket.socket | int, timeout_s: float) -> None:
    """Wait until a socket or pipe has something to read, or its other side has gone.

    Raises:
        TimeoutError: neither happened within `timeout_s` seconds.
    """
    loop = asyncio.get_running_loop()
    await _ready(link, loop.add_reader, loop.remove_reader, timeout_s)


async def writable(link: socket.socket | int, timeout_s: float) -> None:
    """Wait until a socket or pipe has room, or its other side has gone.

    Raises:
        TimeoutError: neither happened within `timeout_s` seconds.
    """
    loop = asyncio.get_running_loop()
    await _ready(link, loop.add_writer, loop.remove_writer, timeout_s)


async def _ready(
    link: socket.socket | int, add: Callable[..., object], remove: Callable[..., object], timeout_s: float
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add(link, on_ready)
    try:
        async with asyncio.timeout(timeout_s):
            await ready
    finally:
        remove(link)


class Pipe:
    """Both ends of a pipe; ours does not block.

    Args:
        ours: the end that we use; the other is given away and then closed.

    Attributes:
        reader: descriptor of the end that is read.
        writer: descriptor of the end that is written.
    """

    def __init__(self, ours: Literal["reader", "writer"]) -> None:
        self.reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reader if ours == "reader" else self.writer, False)

    def close_writer(self) -> None:
        """Close the writing end."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close_reader(self) -> None:
        """Close the reading end."""
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_writer()
        self.close_reader()


class Stream(Pipe):
    """A pipe to read, of which at most `limit_bytes` are kept."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__("reader")
        self._limit_bytes = limit_bytes
        self._chunks: list[bytes] = []
        self._size = 0

    @property
    def truncated(self) -> bool:
        """Whether more came than is kept."""
        return self._size > self._limit_bytes

    def text(self) -> str:
        """What is kept, as UTF-8; undecodable bytes become U+FFFD."""
        return b"".join(self._chunks)[: self._limit_bytes].decode("utf-8", "replace")

    @contextmanager
    def reading(self, overflow: Callable[[], None]) -> Iterator[None]:
        """Read in the background; call `overflow` once when the limit is passed, and stop reading."""
        loop = asyncio.get_running_loop()

        def on_ready() -> None:
            if not self._take() or self.truncated:
                loop.remove_reader(self.reader)
            if self.truncated:
                overflow()

        loop.add_reader(self.reader, on_ready)
        try:
            yield
        finally:
            loop.remove_reader(self.reader)

    def drain(self) -> None:
        """Take what the pipe still holds, once its writers are gone."""
        while not self.truncated and self._take():
            pass

    def _take(self) -> bool:
        """Read once; False at the end."""
        try:
            chunk = os.read(self.reader, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._size += len(chunk)
        self._chunks.append(chunk)
        return bool(chunk)
