"""A port that is chosen now and bound in a minute."""

import socket

import pytest

from agar.rollout.engines import ports


def test_it_is_free_and_outside_of_what_the_system_gives_away():
    low, high = ports.ephemeral()
    for _ in range(50):
        port = ports.free_port()
        assert not low <= port <= high
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_one_that_somebody_listens_on_is_not_chosen(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "ephemeral", lambda: (port + 1, 65_535))
        monkeypatch.setattr(ports, "_LOWEST", port)
        assert ports.free_port() != port


@pytest.mark.parametrize("text", ["1024\t65535\n", "1024 65535"])
def test_where_the_system_gives_all_of_them_away_it_gives_one(monkeypatch, tmp_path, text):
    range_file = tmp_path / "range"
    range_file.write_text(text)
    monkeypatch.setattr(ports, "_EPHEMERAL", range_file)
    assert ports.ephemeral() == (1024, 65_535)
    assert ports.free_port() > 1024


def test_a_system_that_does_not_say_has_the_usual_range(monkeypatch, tmp_path):
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "missing")
    assert ports.ephemeral() == (32_768, 60_999)
