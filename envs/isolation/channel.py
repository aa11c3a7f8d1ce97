"""Messages with a length in front of them, over a socket, with deadlines and a bound."""

import socket
import struct
import time

from agar.errors import DeadlineError, EnvError

QUESTION_BYTES = 16
"""The length of what stands before a request, hexadecimal digits drawn by chance; its answer repeats them."""

_HEADER = struct.Struct(">Q")


class Channel:
    """One end of a pair of sockets; blocking, one thread at a time, but `shut` from any."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected stream socket."""
        self._sock = sock

    def send(self, data: bytes, *, timeout_s: float | None = None) -> None:
        """Send one message.

        Raises:
            EOFError: the other end is closed.
            DeadlineError: it was not taken within the deadline.
        """
        self._sock.settimeout(timeout_s)
        try:
            self._sock.sendall(_HEADER.pack(len(data)) + data)
        except TimeoutError as error:
            raise DeadlineError(f"a message of {len(data)} bytes was not taken within {timeout_s} s") from error
        except OSError as error:
            raise EOFError(str(error)) from error

    def receive(self, *, max_bytes: int, timeout_s: float | None = None) -> bytes:
        """Wait for one message.

        Raises:
            EOFError: the other end is closed.
            EnvError: the message is longer than `max_bytes`; it is not read.
            DeadlineError: it was not there, whole, within the deadline.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _HEADER.unpack(self._exactly(_HEADER.size, until))
        if length > max_bytes:
            raise EnvError(f"an answer of {length:,} bytes, at most {max_bytes:,} are allowed")
        return self._exactly(length, until)

    def shut(self) -> None:
        """End it for both sides; a thread that waits in it gets an `EOFError`."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it was ended before

    def close(self) -> None:
        """Give the socket back."""
        self._sock.close()

    def _exactly(self, count: int, until: float | None) -> bytes:
        pieces = bytearray()
        while len(pieces) < count:
            if until is not None:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    raise DeadlineError("no whole answer in time")
                self._sock.settimeout(left_s)
            try:
                piece = self._sock.recv(min(count - len(pieces), 1 << 20))
            except TimeoutError as error:
                raise DeadlineError("no whole answer in time") from error
            except OSError as error:
                raise EOFError(str(error)) from error
            if not piece:
                raise EOFError("closed")
            pieces += piece
        return bytes(pieces)
