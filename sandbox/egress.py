"""A way out to listed places: a proxy outside, reached through the one port that the gateway would have.

The sandbox keeps its own network without any address. Programs find the proxy by the usual variables (`HTTPS_PROXY`);
names are resolved out here, so that no name server need be reached and none can be used to carry data out.
"""

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from agar.sandbox.config import GATEWAY_PORT, SandboxSpec

logger = logging.getLogger(__name__)
_HEAD_BYTES = 1 << 16
_HTTP_PORT = 80
_OURS = (b"host", b"connection", b"keep-alive")
_HEAD_TIMEOUT_S = 20.0
_CONNECT_TIMEOUT_S = 20.0
_CHUNK_BYTES = 1 << 16


@asynccontextmanager
async def leading_on(spec: SandboxSpec, gateway: Path | None) -> AsyncIterator[Path | None]:
    """The unix socket that a sandbox's port leads to; None where it has none.

    Args:
        spec: what the sandbox may reach.
        gateway: the gateway's socket, where it may reach that.
    """
    if not isinstance(spec.network, tuple):
        yield gateway
        return
    proxy = Proxy(spec.network)
    with tempfile.TemporaryDirectory(prefix="agar-egress-") as folder:
        path = Path(folder) / "proxy"
        server = await asyncio.start_unix_server(proxy.serve, path, limit=_HEAD_BYTES)
        try:
            yield path
        finally:
            server.close()
            await proxy.close()


def proxy_env(spec: SandboxSpec) -> Mapping[str, str]:
    """The variables by which programs find the proxy."""
    if not isinstance(spec.network, tuple):
        return {}
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return dict.fromkeys(names, f"http://127.0.0.1:{GATEWAY_PORT}")


class Proxy:
    """An HTTP proxy for listed places only: `CONNECT`, and plain requests by absolute address."""

    def __init__(self, places: Sequence[str]) -> None:
        """Nothing is opened yet.

        Args:
            places: `host:port` or `*.domain:port`.
        """
        self._places = [(host.lower(), int(port)) for host, _, port in (place.rpartition(":") for place in places)]
        self._running: set[asyncio.Task[None]] = set()
        self.refused = 0
        """Requests for places that are not listed."""

    def allows(self, host: str, port: int) -> bool:
        """Whether a place is listed."""
        name = host.lower().rstrip(".")
        return any(
            port == allowed and (name == pattern or (pattern.startswith("*.") and name.endswith(pattern[1:])))
            for pattern, allowed in self._places
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        assert task is not None, "a server's callback runs in a task"
        self._running.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError):
                await self._serve(reader, writer)
        finally:
            self._running.discard(task)
            writer.close()

    async def close(self) -> None:
        """Cut all connections."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        address = urlsplit(f"//{target}" if method == "CONNECT" else target)
        port = address.port or _HTTP_PORT
        if address.hostname is None or not self.allows(address.hostname, port):
            self.refused += 1
            logger.info("a sandbox was refused %s:%s, which its network does not list", address.hostname, port)
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 33\r\nConnection: close\r\n\r\n")
            writer.write(b"this sandbox cannot reach there.\n")
            await writer.drain()
            return
        request = b"" if method == "CONNECT" else _one_request(head, method, address, port)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                onward_reader, onward = await asyncio.open_connection(address.hostname, port)
        except (OSError, TimeoutError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                onward.write(request)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, onward))
                group.create_task(_pass_on(onward_reader, writer))
        finally:
            onward.close()


def _one_request(head: bytes, method: str, address: SplitResult, port: int) -> bytes:
    """The request for the origin, which one address may share with others: the host it names is the one that is listed.

    Its connection ends with the answer, so no second one can name another.

    Raises:
        ValueError: a header could be read in two ways.
    """
    kept = []
    for line in head.split(b"\r\n")[1:-2]:
        name = line.partition(b":")[0]
        if name != name.strip() or b"\n" in line or b"\r" in line:
            raise ValueError("a header that goes on in the next line, or hides another")
        if not name.lower().startswith(b"proxy-") and name.lower() not in _OURS:
            kept.append(line)
    host = f"[{address.hostname}]" if ":" in (address.hostname or "") else address.hostname
    target = f"{address.path or '/'}{'?' + address.query if address.query else ''}"
    first = f"{method} {target} HTTP/1.1\r\nHost: {host}{'' if port == _HTTP_PORT else f':{port}'}".encode("latin-1")
    return b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
