"""A connection whose client must come to the point: a request's head has a deadline and a size, and so has reading."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

logger = logging.getLogger(__name__)

_HEAD_BYTES = 64 * 1024


class Connection(HttpToolsProtocol):
    """Uvicorn's connection, closed where it waits for a head that does not come or does not end.

    Uvicorn waits for ever and takes any number of headers; a program could hold as many connections as the process may
    have, and lock every other session out. It waits for ever for a client that does not read its reply, too: such a
    connection is dropped, and the call ends as if the client had left.

    Args:
        head_timeout_s: the longest wait for a head.
        write_timeout_s: how long a client may leave more of its reply unread than the transport holds.
        on_unread: called when one has left it longer.
        arguments: uvicorn's.
    """

    def __init__(
        self, *, head_timeout_s: float, write_timeout_s: float, on_unread: Callable[[], None], **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._head_timeout_s, self._write_timeout_s, self._on_unread = head_timeout_s, write_timeout_s, on_unread
        self._unread: asyncio.TimerHandle | None = None  # set while the client must read first
        self._patience: asyncio.TimerHandle | None = None  # set while a head is awaited
        self._head_bytes = 0
        self._in_body = False  # also while the rest of one comes that was refused: its client reads when it has sent it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        self._stop_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a head, as long as there are not too many, or of a body."""
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()
        if self._patience is not None and not self._in_body:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._patience is not None and self._head_bytes > _HEAD_BYTES:
            self._give_up()

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head."""
        self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is here."""
        self._stop_waiting()
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is here."""
        self._in_body = False
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The transport is full: the client must read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._write_timeout_s, self._drop)

    def resume_writing(self) -> None:
        """The client has read."""
        self._stop_writing()
        super().resume_writing()

    def _stop_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _drop(self) -> None:
        self._unread = None
        logger.warning("UnreadReply: a client did not read its reply for %g s and is cut off", self._write_timeout_s)
        self._on_unread()
        self.transport.abort()

    def _await_head(self) -> None:
        if self._patience is None:
            self._head_bytes = 0
            self._patience = self.loop.call_later(self._head_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._stop_waiting()
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_head()  # the reply to an earlier request comes first
        elif not self.transport.is_closing():
            self.transport.close()
