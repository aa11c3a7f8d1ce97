"""The proxy: listed places, and nothing else."""

import asyncio

import pytest

from agar.errors import ConfigError
from agar.sandbox import SandboxSpec, create
from agar.sandbox.egress import Proxy, leading_on, proxy_env


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("example.org", 443, True),
        ("Example.ORG.", 443, True),
        ("example.org", 80, False),
        ("evil-example.org", 443, False),
        ("example.org.evil.net", 443, False),
        ("files.example.com", 443, True),
        ("example.com", 443, False),
        ("a.b.example.com", 443, True),
        ("xexample.com", 443, False),
        ("127.0.0.1", 443, False),
        ("::1", 443, False),
    ],
)
def test_places_are_compared_whole(host, port, allowed):
    assert Proxy(["example.org:443", "*.example.com:443"]).allows(host, port) is allowed


async def ask(path, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.fixture
async def origin():
    """A server that says what it heard, and its port."""
    heard = []

    async def answer(reader, writer):
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


async def test_a_plain_request_goes_on_alone_and_without_the_proxys_headers(origin):
    port, heard = origin
    async with leading_on(SandboxSpec(network=(f"localhost:{port}",)), None) as path:
        request = f"GET http://localhost:{port}/a?b=c HTTP/1.1\r\nHost: localhost\r\nProxy-Authorization: secret\r\n"
        answer = await ask(path, request.encode() + b"Connection: keep-alive\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nok")
    assert heard == [f"GET /a?b=c HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode()]


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ("Host: evil.net\r\nAccept: x\r\n", "Accept: x\r\n"),
        ("hOsT:evil.net\r\nHost: evil.org\r\n", ""),
        ("", ""),
        ("X: y\r\nHost : evil.net\r\n", None),
        ("X: y\nHost: evil.net\r\n", None),
        ("X: y\r\n Host: evil.net\r\n", None),
    ],
)
async def test_the_origin_is_told_the_listed_host_and_no_other(origin, headers, kept):
    port, heard = origin
    async with leading_on(SandboxSpec(network=(f"localhost:{port}",)), None) as path:
        answer = await ask(path, f"GET http://localhost:{port}/ HTTP/1.1\r\n{headers}\r\n".encode())
    assert answer.endswith(b"ok") is (kept is not None)
    told = f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n{kept}Connection: close\r\n\r\n"
    assert heard == ([] if kept is None else [told.encode()])


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("CONNECT localhost:1 HTTP/1.1", b"HTTP/1.1 403"),
        ("GET http://localhost:PORT@evil.net/ HTTP/1.1", b"HTTP/1.1 403"),
        ("GET http://127.0.0.1:PORT/ HTTP/1.1", b"HTTP/1.1 403"),
        ("GET /relative HTTP/1.1", b"HTTP/1.1 403"),
        ("CONNECT localhost:nonsense HTTP/1.1", b""),
        ("garbage", b""),
    ],
)
async def test_everything_else_is_refused(origin, request_line, status):
    port, heard = origin
    async with leading_on(SandboxSpec(network=(f"localhost:{port}",)), None) as path:
        answer = await ask(path, request_line.replace("PORT", str(port)).encode() + b"\r\n\r\n")
    assert answer.startswith(status)
    assert bool(answer) == bool(status)
    assert heard == []


async def test_a_listed_place_that_is_down_is_said(unused_tcp_port):
    async with leading_on(SandboxSpec(network=(f"127.0.0.1:{unused_tcp_port}",)), None) as path:
        answer = await ask(path, f"CONNECT 127.0.0.1:{unused_tcp_port} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 502")


async def test_other_networks_have_no_proxy(tmp_path):
    assert proxy_env(SandboxSpec()) == {}
    assert proxy_env(SandboxSpec(network=("a:1",)))["HTTPS_PROXY"] == "http://127.0.0.1:8400"
    async with leading_on(SandboxSpec(), None) as path:
        assert path is None
    async with leading_on(SandboxSpec(network="gateway"), tmp_path) as path:
        assert path == tmp_path


@pytest.mark.parametrize(
    "place", ["example.org", "example.org:", ":443", "example.org:0", "example.org:70000", "*:443", "a*b.org:443"]
)
def test_a_place_without_host_or_port_is_refused(place):
    with pytest.raises(ValueError, match=r"must be host:port"):
        SandboxSpec(network=(place,))


def test_a_backend_without_such_a_network_refuses():
    with pytest.raises(ConfigError, match="the fake sandbox reaches nothing"):
        create(SandboxSpec(backend="fake", network=("a:1",)))
