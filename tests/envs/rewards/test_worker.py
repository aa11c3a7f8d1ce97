"""Grading processes: answers, deadlines, deaths, the slowest, the owner's end."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from agar.envs.rewards.worker import NoAnswer, Workers
from agar.errors import EnvError

MODULE = """
import os, signal, subprocess, sys, time
from agar.envs.rewards.answering import refuse, serve
if sys.argv[1] == "refuse":
    refuse("not today")
elif sys.argv[1] == "end":
    sys.exit(3)
elif sys.argv[1] == "sleep":
    time.sleep(60)
else:
    def answer(question):
        print("noise on standard output", flush=True)
        if question == "hang":
            time.sleep(60)
        if isinstance(question, list):
            path, what = question
            with open(path + "~", "w") as file:
                file.write(str(subprocess.Popen(["sleep", "600"]).pid))
            os.rename(path + "~", path)
            if what == "die":
                os._exit(1)
            time.sleep(60 if what == "hang" else 0)
        if question == "die":
            os._exit(1)
        if question == "once" and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os._exit(1)
        return {"pid": os.getpid(), "question": question}
    serve(answer)
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    (tmp_path / "grader_of_the_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of an owner that is a process itself
    made = []

    def start(argument=str(tmp_path / "mark"), **settings):
        made.append(Workers("grader_of_the_test", argument, **{"timeout_s": 30.0, **settings}))
        return made[-1]

    yield start
    for workers in made:
        workers.close()


def test_questions_are_answered_by_one_process_whatever_it_prints(make):
    workers = make()
    first, second = workers.ask("\u00e9\n"), workers.ask({"a": [1, None]})
    assert (first["question"], second["question"]) == ("\u00e9\n", {"a": [1, None]})
    assert first["pid"] == second["pid"]


def test_one_that_hangs_is_killed_named_and_replaced(make, caplog):
    workers = make()
    pid = workers.ask("before")["pid"]
    workers.timeout_s = 0.3
    with pytest.raises(NoAnswer, match="timeout"):
        workers.ask("hang", about="the hanging one")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert workers.slowest[0][1] in ("the hanging one", '"before"')
    assert "the hanging one" in [about for _, about in workers.slowest]
    assert "grading was ended after 0.3 s: the hanging one" in caplog.text
    workers.timeout_s = 30.0
    assert workers.ask("after")["pid"] != pid


@pytest.mark.parametrize("how", ["hang", "die", "close"])
def test_what_a_grader_has_started_ends_with_it(make, tmp_path, how):
    workers = make()
    workers.ask("before")
    workers.timeout_s = 2.0 if how == "hang" else 30.0
    if how == "close":
        workers.ask([str(tmp_path / "pid"), how])
        workers.close()
    else:
        with pytest.raises(NoAnswer):
            workers.ask([str(tmp_path / "pid"), how])
    assert_gone(int((tmp_path / "pid").read_text()))


def test_a_death_is_put_down_to_the_question_only_where_it_happens_again(make):
    workers = make()
    assert workers.ask("once")["question"] == "once"
    with pytest.raises(NoAnswer, match="died"):
        workers.ask("die")
    assert workers.ask("next")["question"] == "next"


@pytest.mark.parametrize(
    ("argument", "said"),
    [("refuse", "cannot start: not today"), ("end", "ended at its start"), ("sleep", "did not start within 2 s")],
)
def test_a_process_that_does_not_come_up_is_the_environments_failure(make, argument, said):
    workers = make(argument, start_timeout_s=2.0 if argument == "sleep" else 30.0)
    with pytest.raises(EnvError, match=said):
        workers.ask("anything")


def test_as_many_are_asked_at_a_time_as_there_are(make):
    workers = make(count=2)
    found = []
    threads = [threading.Thread(target=lambda n=n: found.append(workers.ask(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=50)
    assert sorted(answer["question"] for answer in found) == list(range(8))
    assert 1 <= len({answer["pid"] for answer in found}) <= 2


def test_closing_ends_every_process_and_the_next_question_starts_one(make):
    workers = make(count=3)
    threads = [threading.Thread(target=workers.ask, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=50)
    running = [process._process for process in workers._free.queue if process is not None]
    assert running
    workers.close()
    assert [process.poll() for process in running] == [-9] * len(running)
    assert workers.ask("again")["question"] == "again"


def test_a_busy_process_ends_with_its_owner(make, tmp_path):
    owner = textwrap.dedent(
        """
        import sys, threading
        from agar.envs.rewards.worker import Workers
        workers = Workers("grader_of_the_test", "x", timeout_s=60.0)
        print(workers.ask("hello")["pid"], flush=True)
        threading.Thread(target=lambda: workers.ask([sys.argv[1], "hang"]), daemon=True).start()
        input()
        """
    )
    started = tmp_path / "pid"
    command = [sys.executable, "-c", owner, started]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    until = time.monotonic() + 30
    while not started.exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert_gone(pid)
    assert_gone(int(started.read_text()))


def assert_gone(pid):
    """Ended within ten seconds, reaped or not."""
    for _ in range(500):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("it lives on")
