"""Ray starts late on a busy machine; only that is tried again."""

import logging
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from agar.errors import DeadlineError, TrainerError
from agar.trainer.config import ParallelConfig, PlacementConfig
from agar.trainer.ray.cluster import RayCluster

LATE = "The current node timed out during startup. This could happen because some of the raylet failed to startup."


class Ray(SimpleNamespace):
    """What the cluster uses of Ray; each start fails with the next of `errors`, and leaves a process behind."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__()
        self.errors = errors
        self.processes: list[subprocess.Popen[bytes]] = []
        self.shutdowns = 0

    def is_initialized(self) -> bool:
        return False

    def init(self, **_: object) -> None:
        self.processes.append(subprocess.Popen(["sleep", "60"]))
        if self.errors:
            raise Exception(self.errors.pop(0))

    def shutdown(self) -> None:
        self.shutdowns += 1


@pytest.fixture
def cluster() -> RayCluster:
    return RayCluster(PlacementConfig(), ParallelConfig())


async def test_a_late_start_is_tried_again_and_leaves_nothing(cluster, monkeypatch, caplog):
    ray = Ray([LATE])
    monkeypatch.setitem(sys.modules, "ray", ray)
    with caplog.at_level(logging.WARNING):
        await cluster.open()
    late, started = ray.processes
    assert late.wait(5) == -9
    assert started.poll() is None
    assert "did not start in time; 2 more tries" in caplog.text
    await cluster.close()
    assert started.wait(5) == -9
    assert ray.shutdowns == 2


async def test_a_start_that_is_always_late_says_what_to_do(cluster, monkeypatch):
    ray = Ray([LATE] * 3)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(DeadlineError, match=r"tried 3 times.*placement\.address"):
        await cluster.open()
    assert [process.wait(5) for process in ray.processes] == [-9, -9, -9]
    await cluster.close()


async def test_any_other_failure_is_raised_at_once(cluster, monkeypatch):
    ray = Ray(["no memory for the object store"])
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(Exception, match="no memory"):
        await cluster.open()
    await cluster.close()
    assert ray.processes[0].wait(5) == -9


def joining(address: str) -> RayCluster:
    return RayCluster(PlacementConfig(address=address), ParallelConfig())


async def test_an_address_where_nobody_answers_is_named_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", Ray([]))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    cluster = joining(f"127.0.0.1:{port}")
    with pytest.raises(TrainerError, match=rf"no Ray cluster can be joined at 127.0.0.1:{port}: .*placement\.address"):
        await cluster.open()
    await cluster.close()


@pytest.mark.parametrize("error", [SystemExit(15), ConnectionError("none found"), RuntimeError("version mismatch")])
async def test_a_cluster_that_cannot_be_joined_does_not_end_the_process(monkeypatch, error):
    ray = Ray([])

    def init(**_: object) -> None:
        raise error

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    cluster = joining("auto")
    with pytest.raises(TrainerError, match=r"joined at auto"):
        await cluster.open()
    await cluster.close()
