"""A mark is handed down, and finds those who carry it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agar.envs.isolation.mark import Mark

FAMILY = """
import subprocess
child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
print(child.pid)
"""


def test_whoever_descends_from_a_carrier_is_found_and_ended_and_nobody_else_is():
    mine, other = Mark(), Mark()
    bystander = subprocess.Popen(["sleep", "600"], env={**os.environ, other.name: "1"})
    try:
        run = subprocess.run(
            [sys.executable, "-S", "-c", FAMILY],
            env={**os.environ, mine.name: "1"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=30,
        )
        assert mine.carriers() == [int(run.stdout)]
        assert mine.clear(timeout_s=10)
        assert mine.carriers() == []
        assert other.carriers() == [bystander.pid]
    finally:
        bystander.kill()
        bystander.wait()


def test_who_only_speaks_of_the_mark_does_not_carry_it():
    mark = Mark()
    environment = {**os.environ, "NOTE": f"{mark.name}=1", f"X{mark.name}": "1"}
    with subprocess.Popen(["cat"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bystander:
        try:
            bystander.stdin.write(b"ready\n")
            bystander.stdin.flush()
            assert bystander.stdout.readline() == b"ready\n"  # it runs, and has its environment
            assert Path(f"/proc/{bystander.pid}/environ").read_bytes().count(f"{mark.name}=1".encode()) == 2
            assert mark.carriers() == []
            assert mark.clear(timeout_s=10)
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_what_cannot_be_ended_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = Mark()
    monkeypatch.setattr(mark, "carriers", lambda: [2**22 + 1])  # no process can have this number
    assert not mark.clear(timeout_s=0.05)
