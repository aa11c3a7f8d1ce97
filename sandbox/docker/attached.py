"""Connections that a Docker engine has handed over to a process's input and output."""

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from agar.errors import SandboxError

API = "/v1.41"
"""The oldest interface that has all we use: Docker 20.10, Podman 4."""
CALL_TIMEOUT_S = 60.0
_CHUNK_BYTES = 1 << 16


class EngineRefusal(SandboxError):
    """The engine answered a call with an error status."""

    status = 0


def refused(status: int, what: str, text: str) -> EngineRefusal:
    """An error from an engine's answer."""
    error = EngineRefusal(f"the Docker engine refused {what}: {_reason(text)}")
    error.status = status
    return error


class Attached:
    """A connection that the engine has handed over: what we send is a process's input, what comes is its output."""

    def __init__(self, link: socket.socket, rest: bytes) -> None:
        self._link = link
        self._buffer = bytearray(rest)

    @classmethod
    async def open(cls, path: Path, target: str, body: Mapping[str, Any] | None) -> Self:
        """Ask for it.

        Raises:
            SandboxError: the engine is not there, or answers anything but the handing over.
        """
        data = json.dumps(body or {}).encode()
        request = (
            f"POST {target} HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\nConnection: Upgrade\r\n"
            f"Upgrade: tcp\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        link = socket.socket(socket.AF_UNIX)
        link.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await loop.sock_connect(link, str(path))
                await loop.sock_sendall(link, request.encode() + data)
                head = b""
                while b"\r\n\r\n" not in head:
                    chunk = await loop.sock_recv(link, _CHUNK_BYTES)
                    if not chunk:
                        raise SandboxError(f"the Docker engine hung up on {target}: see its log")
                    head += chunk
            head, _, rest = head.partition(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status not in (101, 200):
                raise refused(status, f"POST {target}", rest.decode(errors="replace"))
        except TimeoutError as error:
            link.close()
            raise SandboxError(f"the Docker engine did not hand over {target} within {CALL_TIMEOUT_S:g} s") from error
        except OSError as error:
            link.close()
            raise SandboxError(f"the Docker engine at {path} cannot be reached: {error}") from error
        except BaseException:
            link.close()
            raise
        return cls(link, rest)

    async def send(self, data: bytes) -> None:
        """Write to the process's input."""
        await asyncio.get_running_loop().sock_sendall(self._link, data)

    def end_input(self) -> None:
        """Close the process's input."""
        self._link.shutdown(socket.SHUT_WR)

    async def frame(self) -> tuple[int, bytes] | None:
        """What the process writes next: (1, bytes) of its output, (2, bytes) of its errors; None at the end of both.

        Nothing is lost when it is cancelled.
        """
        loop = asyncio.get_running_loop()
        while True:
            if len(self._buffer) >= 8:
                stream, size = struct.unpack(">BxxxL", self._buffer[:8])
                if len(self._buffer) >= 8 + size:
                    data = bytes(self._buffer[8 : 8 + size])
                    del self._buffer[: 8 + size]
                    return stream, data
            chunk = await loop.sock_recv(self._link, _CHUNK_BYTES)
            if not chunk:
                return None
            self._buffer += chunk

    def close(self) -> None:
        """Hang up. A second call does nothing."""
        self._link.close()


def _reason(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[-500:] or "no reason given"
