"""Streams that an engine hands over, against a double that says what an engine would."""

import asyncio
import struct

import pytest

from agar.errors import SandboxError
from agar.sandbox.docker.attached import Attached, EngineRefusal


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


@pytest.fixture
async def engine(tmp_path):
    """Listens, answers with `say`, then does what the test wants with the connection."""

    class Double:
        path = tmp_path / "engine"
        head = b"HTTP/1.1 101 UPGRADED\r\nUpgrade: tcp\r\n\r\n"
        pieces: tuple[bytes, ...] = ()
        heard = b""
        given: asyncio.Future[bytes]

        async def serve(self, reader, writer):
            self.heard = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            writer.write(self.head)
            for piece in self.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
            self.given.set_result(await reader.read())
            writer.close()

    double = Double()
    double.given = asyncio.get_running_loop().create_future()
    server = await asyncio.start_unix_server(double.serve, double.path)
    async with server:
        yield double


async def test_frames_come_whole_however_they_are_cut(engine):
    whole = frame(1, b"out") + frame(2, b"") + frame(2, b"err" * 1000)
    engine.pieces = (whole[:1], whole[1:9], whole[9:20], whole[20:])
    link = await Attached.open(engine.path, "/exec/1/start", {})
    assert [await link.frame() for _ in range(3)] == [(1, b"out"), (2, b""), (2, b"err" * 1000)]
    await link.send(b"in")
    link.end_input()
    assert await engine.given == b"in"
    assert await link.frame() is None
    link.close()
    link.close()
    assert engine.heard.startswith(b"POST /exec/1/start HTTP/1.1\r\n")


async def test_a_cancelled_wait_loses_nothing(engine):
    whole = frame(1, b"said")
    engine.pieces = (whole[:6],)
    link = await Attached.open(engine.path, "/x", None)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await link.frame()
    assert bytes(link._buffer) == whole[:6]
    link.close()


async def test_a_refusal_is_told_with_its_status_and_reason(engine):
    engine.head = b'HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\n\r\n{"message":"is not running"}'
    with pytest.raises(EngineRefusal, match=r"refused POST /x: is not running") as caught:
        await Attached.open(engine.path, "/x", None)
    assert caught.value.status == 409


async def test_no_engine_and_one_that_hangs_up_are_told(engine, tmp_path):
    with pytest.raises(SandboxError, match="cannot be reached"):
        await Attached.open(tmp_path / "nothing", "/x", None)
    engine.head = b"HTTP"
    engine.given.set_result(b"")  # serving ends with an error, and the connection with it

    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(hang_up, tmp_path / "rude")
    async with server:
        with pytest.raises(SandboxError, match=r"hung up|cannot be reached"):
            await Attached.open(tmp_path / "rude", "/x", None)
