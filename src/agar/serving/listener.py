"""Serving an ASGI application inside the caller's event loop: own socket, no signal handlers, clean end."""

import asyncio
import contextlib
import functools
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from agar.errors import ConfigError, DeadlineError
from agar.serving.connection import Connection

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 10.0
_KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that it is they who close them
_BACKLOG = 2048


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever owns the event loop."""
        yield


class Listener:
    """A running server on an address and on a unix socket, which lies in a folder that only this user can enter.

    Args:
        app: the ASGI application.
        name: what is served, one word; names the socket, its folder, and the server in messages.
        host: address to listen on.
        port: port; 0 takes a free one.
        shutdown_timeout_s: how long open connections may finish at the end.
        head_timeout_s: the longest wait for the head of a request.
        write_timeout_s: how long a client may leave its reply unread.
        on_unread: called when one was cut off for it.

    Attributes:
        host: the address.
        port: the real port.
    """

    def __init__(
        self,
        app: Any,
        *,
        name: str,
        host: str,
        port: int,
        shutdown_timeout_s: float,
        head_timeout_s: float,
        write_timeout_s: float = 60.0,
        on_unread: Callable[[], None] = lambda: None,
    ) -> None:
        self.host, self.port = host, port
        self._name = name
        self._shutdown_timeout_s = shutdown_timeout_s
        connection = functools.partial(
            Connection, head_timeout_s=head_timeout_s, write_timeout_s=write_timeout_s, on_unread=on_unread
        )
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                log_level="warning",
                server_header=False,
                date_header=False,
                proxy_headers=False,
                ws="none",
                http=connection,  # type: ignore[arg-type]
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(shutdown_timeout_s)),
            )
        )
        self._task: asyncio.Task[None] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def socket_path(self) -> Path | None:
        """The unix socket; None before the start and after the end."""
        return Path(self._folder.name, f"{self._name}.sock") if self._folder else None

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be bound.
            DeadlineError: the server did not start in time.
        """
        listening = self._bind()
        self.port = listening.getsockname()[1]
        _remove_abandoned(self._name)
        self._folder = tempfile.TemporaryDirectory(prefix=f"agar-{self._name}-")
        try:
            sockets = [listening, self._bind_unix(self._folder.name)]
        except BaseException:
            listening.close()
            self._remove_folder()
            raise
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=sockets))
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while not self._server.started:
                    if self._task.done():
                        self._task.result()
                    await asyncio.sleep(0.001)
        except TimeoutError as error:
            raise DeadlineError(
                f"the {self._name} server did not start on {self.host}:{self.port} in {_START_TIMEOUT_S} s"
            ) from error

    async def stop(self) -> None:
        """Stop listening and close connections; may be called again."""
        task, self._task = self._task, None
        if task is None:
            return
        self._server.should_exit = True
        done, _ = await asyncio.wait({task}, timeout=self._shutdown_timeout_s + 2.0)
        if not done:
            logger.warning("the %s server on port %d did not stop in time and was cancelled", self._name, self.port)
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("the %s server ended with %r", self._name, error)
        self._remove_folder()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # With the protocol named, asyncio switches Nagle's algorithm off: else a reply's body waits for the client to
        # acknowledge its head, which under load takes 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((self.host, self.port))
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            raise ConfigError(f"cannot listen on {self.host}:{self.port} ({error}): set its port to 0") from error
        listening.setblocking(False)
        return listening

    def _bind_unix(self, folder: str) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(f"{folder}/new")
            listening.listen(_BACKLOG)
            os.rename(f"{folder}/new", f"{folder}/{self._name}.sock")  # under its name it always has a listener
        except OSError as error:
            listening.close()
            raise ConfigError(
                f"cannot listen on a unix socket in {folder} ({error}): set TMPDIR to a folder with a short path"
            ) from error
        listening.setblocking(False)
        return listening

    def _remove_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def _remove_abandoned(name: str) -> None:
    """Remove the folders that killed servers of this user have left: nobody listens on their sockets."""
    for path in Path(tempfile.gettempdir()).glob(f"agar-{name}-*/{name}.sock"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            if path.stat().st_uid == os.getuid():
                probe.setblocking(False)
                try:
                    probe.connect(str(path))
                except ConnectionRefusedError:
                    shutil.rmtree(path.parent)
