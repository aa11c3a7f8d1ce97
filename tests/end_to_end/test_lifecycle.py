"""One run's life: an engine is killed, Ctrl-C ends it, and it goes on from where it stood."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.conftest import EXAMPLE, agar, only_run, settings

from agar.ledger.trace import load_traces
from agar.trainer.ray.watchdog import Family

pytestmark = [pytest.mark.sglang, pytest.mark.megatron, pytest.mark.ray, pytest.mark.sandbox, pytest.mark.timeout(1200)]

MARK = "AGAR_LIFECYCLE_TEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happened.

    Attributes:
        folder: the run folder.
        steps_at_kill: steps done when an engine was killed.
        failures: engines that were found dead until one was back.
        steps_at_stop: steps done when Ctrl-C came.
        stopped: what the process printed, and its exit code.
        stop_s: seconds from Ctrl-C to the end of the process.
        left: processes that were still there then.
        resumed: what the resumed command printed.
        final: steps that the resumed run was asked for.
    """

    folder: Path
    steps_at_kill: int
    failures: float
    steps_at_stop: int
    stopped: subprocess.CompletedProcess[str]
    stop_s: float
    left: dict[int, str]
    resumed: str
    final: int


def processes(family: Family) -> dict[int, str]:
    """The family's living processes, with their command lines or the titles that they gave themselves."""
    found = {}
    for pid in family.look():
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
    return {pid: command for pid, command in found.items() if command}


def rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [row for row in map(json.loads, lines) if "trainer/loss" in row]


def counted(folder: Path, what: str) -> float:
    """What the pool has counted of its engines up to the last step."""
    count: float = rows(folder)[-1][f"engines/engine_{what}_count"]
    return count


def serves(line: str) -> bool:
    """Whether a command line is a server's; its guardian, which starts before it, has that in its own."""
    return "sglang" in line and "launch_server" in line and "guardian.py" not in line


def wait_for(
    what: str, met: Callable[[], bool], process: subprocess.Popen[str], family: Family, *, limit_s: float
) -> None:
    deadline = time.monotonic() + limit_s
    while not met():
        assert process.poll() is None, f"the run ended while waiting for {what}"
        assert time.monotonic() < deadline, f"{what} did not happen within {limit_s:g} s"
        family.look()  # a process that loses the mark is known by who started it
        time.sleep(0.2)


@pytest.fixture(scope="module")
def story(tmp_path_factory, warm):
    root, mark = tmp_path_factory.mktemp("story"), uuid.uuid4().hex
    family = Family(f"{MARK}={mark}".encode())
    values = {
        "run.dir": root,
        "run.steps": 500,
        "run.checkpoint_every_steps": 1,
        "policies.main.model": warm,
        "policies.main.schedule.total_steps": 500,
        "engines.count": 2,
        "rollout.tasks_per_step": 4,
        "rollout.group_size": 4,
        "rollout.max_staleness": 1,
        "evaluate.0.tasks": 4,
    }
    command = [sys.executable, "-P", "-m", "agar.cli.main", "train", str(EXAMPLE / "train.toml"), *settings(values)]
    with (root / "out").open("w+") as out:
        process = subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            text=True,
        )
        try:
            wait_for("the run folder", lambda: bool(list(root.glob("train-*"))), process, family, limit_s=60)
            folder = only_run(root, "train")
            wait_for("step 1", lambda: len(rows(folder)) >= 1, process, family, limit_s=300)
            engine = min(pid for pid, line in processes(family).items() if serves(line))
            steps_at_kill = len(rows(folder))
            os.kill(engine, signal.SIGKILL)
            wait_for("three steps more", lambda: len(rows(folder)) >= steps_at_kill + 3, process, family, limit_s=300)
            wait_for("the engine's return", lambda: counted(folder, "recoveries") > 0, process, family, limit_s=300)
            failures = counted(folder, "failures")
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            process.wait(60)
            stop_s = time.monotonic() - began
            left = processes(family)
        finally:
            process.kill()
            for pid in processes(family):
                os.kill(pid, signal.SIGKILL)
        out.seek(0)
        stopped = subprocess.CompletedProcess(command, process.returncode, out.read())
    done = len(rows(folder))
    resumed = agar("train", "--resume", str(folder), "--run.steps", str(done + 2), cwd=root)
    return Story(
        folder=folder,
        steps_at_kill=steps_at_kill,
        failures=failures,
        steps_at_stop=done,
        stopped=stopped,
        stop_s=stop_s,
        left=left,
        resumed=resumed.stdout,
        final=done + 2,
    )


def test_the_run_goes_on_when_an_engine_is_killed(story):
    assert story.steps_at_stop >= story.steps_at_kill + 3
    assert story.failures >= 1  # more where the machine is so busy that another one answers too late
    assert "its process ended with code 137" in story.stopped.stdout
    assert "is back after" in story.stopped.stdout


def test_ctrl_c_ends_everything_within_ten_seconds(story, record_testsuite_property):
    record_testsuite_property("ctrl_c_s", story.stop_s)
    assert story.stop_s < 10
    assert story.left == {}
    assert story.stopped.returncode == 0, story.stopped.stdout
    assert f"agar train --resume {story.folder}" in story.stopped.stdout


def test_resume_goes_on_from_the_last_step(story):
    assert [row["step"] for row in rows(story.folder)] == list(range(1, story.final + 1))


def test_no_task_was_lost_or_trained_twice_over_kill_and_resume(story):
    groups = []
    for step in range(1, story.final + 1):
        traces = load_traces(story.folder / "traces" / f"step-{step:06d}.jsonl")
        groups.append({trace.group for trace in traces})
    assert [len(each) for each in groups] == [4] * story.final
    trained = sorted((group.ordinal, group.task) for each in groups for group in each)
    assert [ordinal for ordinal, _ in trained] == list(range(4 * story.final))
    assert len({task for _, task in trained}) == 4 * story.final


def test_no_trained_token_was_older_than_the_bound(story):
    assert max(row["rollout/staleness_max"] for row in rows(story.folder)) == 1
