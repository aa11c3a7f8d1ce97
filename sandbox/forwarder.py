"""The way from a port inside a sandbox to the gateway's unix socket.

The port is opened by the keeper, in the network that the command will find itself in, before the command starts; its
listening socket comes out to us. So nothing inside carries the connections, nothing of the host's file system leads to
the gateway, and there is no other address inside: what the command says on that port is read here, outside, and goes
to that one unix socket.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from agar.sandbox.keeper import receive

_CONNECTIONS = 32  # of one command at one time; more wait in the listening socket's queue
_CHUNK_BYTES = 1 << 16
_BREATH_S = 0.1  # after an accept that failed for want of descriptors


class Forwarder:
    """Carries the connections of one command."""

    def __init__(self, gateway: Path) -> None:
        """Nothing is connected yet.

        Args:
            gateway: the unix socket that every connection leads to.
        """
        self._gateway = gateway
        self._link, self.given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        """`given` goes to the keeper; the listening socket comes back over it."""
        self._link.setblocking(False)
        self._free = asyncio.Semaphore(_CONNECTIONS)
        self._running: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Carry connections for as long as the context is open; all are cut at its end."""
        self.given.close()
        self._start(self._accept())
        try:
            yield
        finally:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)

    def close(self) -> None:
        """Close what is left of the way to the keeper. A second call does nothing."""
        self.given.close()
        self._link.close()

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _accept(self) -> None:
        listening = await self._listening()
        if listening is None:  # the command could not be started
            return
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                await self._free.acquire()
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError:
                    self._free.release()
                    await asyncio.sleep(_BREATH_S)
                    continue
                carrying = self._start(self._carry(connection))
                carrying.add_done_callback(partial(self._ended, connection))

    def _ended(self, connection: socket.socket, _: asyncio.Task[None]) -> None:
        connection.close()  # here, for a task that is cancelled before it began runs no `finally`
        self._free.release()

    async def _listening(self) -> socket.socket | None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._link, ready.set)
        try:
            await ready.wait()  # ends with the command at the latest, whose deadline the caller watches
        finally:
            loop.remove_reader(self._link)
        _, fds = receive(self._link)
        if not fds:
            return None
        listening = socket.socket(fileno=fds[0])
        listening.setblocking(False)
        return listening

    async def _carry(self, connection: socket.socket) -> None:
        """One connection, until either side has ended it."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as onward:
            onward.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(onward, str(self._gateway))
            ways = [loop.create_task(_pass_on(a, b)) for a, b in ((connection, onward), (onward, connection))]
            try:
                await asyncio.wait(ways)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)


async def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Bytes from one socket to the other, and then the end."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while chunk := await loop.sock_recv(source, _CHUNK_BYTES):
            await loop.sock_sendall(target, chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
