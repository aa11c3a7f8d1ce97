"""The gateway on its unix socket: the same service, for whoever may enter its folder, as long as it is open."""

import asyncio
import socket
import stat
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agar.errors import ConfigError
from agar.rollout.gateway.server import Gateway

BODY = {"messages": [{"role": "user", "content": "Start."}]}


async def test_the_unix_socket_serves_the_same_sessions(gateway, session):
    assert session.socket_path == gateway.socket_path
    transport = httpx.AsyncHTTPTransport(uds=str(session.socket_path))
    headers = {"authorization": f"Bearer {session.id}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers) as http:
        reply = await http.post("/v1/chat/completions", json=BODY)
        assert reply.json()["choices"][0]["message"]["content"] == "Look."
        assert session.replies == 1
        session.seal()
        assert (await http.post("/v1/chat/completions", json=BODY)).status_code == 401


async def test_nobody_else_can_enter_its_folder_and_nothing_is_left_of_it(family, engine):
    gateway = Gateway(engines={"main": engine}, families={"main": family})
    assert gateway.socket_path is None
    async with gateway:
        path = gateway.socket_path
        assert path is not None
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.is_socket()
    assert not path.parent.exists()
    assert gateway.socket_path is None


async def test_a_temporary_folder_with_too_long_a_path_is_refused_with_the_remedy(
    family, engine, tmp_path, monkeypatch
):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(ConfigError, match="set TMPDIR to a folder with a short path"):
        async with Gateway(engines={"main": engine}, families={"main": family}):
            pass
    assert list(deep.iterdir()) == []


async def test_a_reply_does_not_wait_for_its_head_to_be_acknowledged(gateway):
    url = urlsplit(gateway.base_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    try:
        writer.write(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200" in await reader.readline()
        served = gateway._listener._server.server_state.connections
        accepted = next(iter(served)).transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_the_folder_of_a_killed_gateway_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    family, engine, monkeypatch
):
    with tempfile.TemporaryDirectory(prefix="agar-t-") as place:  # a short path
        monkeypatch.setattr("tempfile.tempdir", place)
        async with Gateway(engines={"main": engine}, families={"main": family}) as living:
            killed = Path(place, "agar-gateway-killed")
            killed.mkdir()
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(f"{killed}/gateway.sock")
            async with Gateway(engines={"main": engine}, families={"main": family}) as later:
                assert sorted(Path(place).iterdir()) == sorted({living.socket_path.parent, later.socket_path.parent})
