"""Messages over a socket: whole, bounded, in time."""

import socket
import threading

import pytest

from agar.envs.isolation.channel import Channel
from agar.errors import DeadlineError, EnvError


@pytest.fixture
def ends():
    one, two = socket.socketpair()
    yield Channel(one), Channel(two)
    one.close()
    two.close()


def test_messages_come_whole_and_in_order(ends):
    one, two = ends
    large = b"x" * 3_000_000
    sender = threading.Thread(target=lambda: [one.send(data, timeout_s=20) for data in (b"a", b"", large)])
    sender.start()
    assert [two.receive(max_bytes=1 << 22, timeout_s=20) for _ in range(3)] == [b"a", b"", large]
    sender.join()


def test_a_message_beyond_the_bound_is_not_read(ends):
    ends[0].send(b"12345", timeout_s=5)
    with pytest.raises(EnvError, match="an answer of 5 bytes, at most 4"):
        ends[1].receive(max_bytes=4, timeout_s=5)


def test_waiting_ends_at_the_deadline_with_half_a_message_too(ends):
    with pytest.raises(DeadlineError):
        ends[0].receive(max_bytes=9, timeout_s=0.05)
    ends[1]._sock.sendall((9).to_bytes(8) + b"half")
    with pytest.raises(DeadlineError):
        ends[0].receive(max_bytes=9, timeout_s=0.05)
    with pytest.raises(DeadlineError):
        ends[0].send(b"x" * 50_000_000, timeout_s=0.05)


def test_the_end_of_the_other_side_and_our_own_is_seen(ends):
    one, two = ends
    waiting = []

    def wait():
        with pytest.raises(EOFError):
            two.receive(max_bytes=9)
        waiting.append("ended")

    reader = threading.Thread(target=wait)
    reader.start()
    two.shut()
    two.shut()
    reader.join(10)
    assert waiting == ["ended"]
    with pytest.raises(EOFError):
        one.receive(max_bytes=9, timeout_s=5)
    with pytest.raises(EOFError):
        one.send(b"x", timeout_s=5)
