"""Whatever an environment in a process of its own does, it hurts only its own episode, and is named."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import agar
from agar.envs import registry
from agar.envs.base import gold_of
from agar.envs.isolation.config import ProcessLimits
from agar.envs.isolation.env import ProcessEnv
from agar.envs.runner import as_async
from agar.errors import ConfigError, EnvError
from agar.sandbox.guardian import parents
from agar.types import Message, Outcome, TaskRow, ToolCall, Turn

LIMITS = ProcessLimits(memory_mib=512, step_timeout_s=30, reply_mib=2)


def gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while pid in parents() and time.monotonic() < until:
        time.sleep(0.02)
    return pid not in parents()


def written(note: Path) -> int:
    until = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    return int(note.read_text())


ANSWERED = {
    "huge": "observation of 100,000,001 characters",
    "nan": "reward nan: return a finite number",
    "word": "reward 'a lot'",
    "truth": "terminated = 'yes'",
    "number": "observation of type int",
    "set": "not JSON-able",
    "raise": "step raised KeyError: 'lost'",
    "unreadable": "step raised Unreadable: its text cannot be read",
}
ENDED = {
    "memory": "step ran out of its 512 MiB of memory",
    "abort": "step: its process was killed by SIGABRT",
    "patricide": "step: the guardian of its process was killed by SIGKILL",
    "close": "step: its process closed the connection",
    "huge info": "step gave an answer of 5,000,.* bytes, at most 2,097,152",
    "garbage": "step gave an answer that is not JSON",
    "forged": "step gave an answer to no question",
}


async def test_every_way_of_misbehaving_is_an_env_error_that_names_it(villain):
    pids = []
    async with as_async(agar.make(villain, limits=LIMITS)) as runner:
        await runner.areset(seed=1)
        _, reward, terminated, truncated, info = await runner.astep("now sandbox")
        assert (reward, terminated, truncated, info["failure"]) == (0.0, False, True, Outcome.INFRA_ERROR)
        for fault, complaint in [*ANSWERED.items(), *ENDED.items()]:
            _, info = await runner.areset(seed=1)
            pids.append(info["pid"])
            with pytest.raises(EnvError, match=rf"Villain-v0.*{complaint}"):
                await runner.astep(f"now {fault}")
    assert len(set(pids[: len(ANSWERED) + 1])) == 1, "what it can still say itself does not end its process"
    assert len(set(pids)) == len(ENDED)


async def test_a_step_that_never_returns_is_killed_at_its_deadline_and_the_next_reset_starts_anew(villain):
    env = agar.make(villain, fault="spin", limits={"step_timeout_s": 3})
    async with as_async(env) as runner:
        _, first = await runner.areset(seed=1)
        with pytest.raises(EnvError, match=r"Villain-v0\.step did not return within 3 s; its process was ended"):
            await runner.astep("now")
        assert gone(first["pid"])
        _, second = await runner.areset(seed=1)
        assert second["pid"] != first["pid"]
        assert (await runner.astep("end"))[1:3] == (0.5, True)
    assert gone(second["pid"])


async def test_an_environment_that_cannot_be_made_is_named(villain):
    async with as_async(agar.make(villain, fault="exit", at="constructor")) as runner:
        with pytest.raises(EnvError, match=r"Villain-v0\.constructor: its process ended itself with exit code 3"):
            await runner.areset()


async def test_what_it_has_started_ends_with_it(villain, tmp_path):
    note = tmp_path / "note"
    async with as_async(agar.make(villain, fault="children", note=str(note))) as runner:
        await runner.areset()
        with pytest.raises(EnvError, match="exit code 0"):
            await runner.astep("now")
    assert gone(int(note.read_text()))


def runs(pid: int) -> bool:
    """Whether it has not ended; one whose parents are gone may wait for long for somebody to collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("fault", ["orphan", "orphan, stopped"])
def test_what_it_has_started_ends_with_it_where_it_ends_or_stops_its_guardian(villain, tmp_path, fault):
    note = tmp_path / "note"
    env = agar.make(villain, note=str(note), limits={"step_timeout_s": 5})
    _, info = env.reset(seed=1)
    guardian = parents()[info["pid"]]
    with pytest.raises(EnvError, match="killed by SIGKILL" if fault == "orphan" else "did not return within 5 s"):
        env.step(f"now {fault}")
    env.close()
    assert [pid for pid in (written(note), info["pid"], guardian) if runs(pid)] == []


async def test_an_answer_that_cannot_be_read_ends_the_process_and_is_not_taken_for_a_later_one(villain):
    async with as_async(agar.make(villain, limits=LIMITS)) as runner:
        first, info = await runner.areset(seed=1)
        with pytest.raises(EnvError, match="an answer to no question"):
            await runner.astep("now forged")
        assert await asyncio.to_thread(gone, info["pid"])
        again, fresh = await runner.areset(seed=1)
        assert again == first
        assert fresh["pid"] != info["pid"]


async def test_a_caller_that_gives_up_ends_the_process(villain):
    runner = as_async(agar.make(villain, fault="hang"))
    _, info = await runner.areset()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runner.astep("now"), 0.3)
    assert await asyncio.to_thread(gone, info["pid"])
    await runner.aclose()


@pytest.mark.parametrize("call", ["areset", "agold"])
async def test_a_caller_that_gives_up_while_it_starts_leaves_no_process(villain, tmp_path, call):
    note = tmp_path / "note"
    runner = as_async(agar.make(villain, fault="slow start", at="constructor", note=str(note)))
    asked = asyncio.create_task(getattr(runner, call)())
    pid = await asyncio.to_thread(written, note)
    asked.cancel()
    await asyncio.wait({asked})
    await runner.aclose()
    assert await asyncio.to_thread(gone, pid)


async def test_a_well_behaved_one_plays_as_it_does_inline(villain):
    task = TaskRow(key="t/1", payload={"seed": 5})
    call = Turn(tool_calls=(ToolCall(id="a", name="add", arguments={"amount": 2}),))
    played = []
    for isolation in ("inline", "process"):
        async with as_async(agar.make(villain, isolation=isolation)) as runner:
            first, info = await runner.areset(seed=5, options={"task": task})
            assert (info["pid"] == os.getpid()) == (isolation == "inline")
            played.append([runner.tools, first, await runner.astep(call), await runner.astep("end")])
            second, _ = await runner.areset(seed=6)
            played[-1].append(second)
    assert played[0] == played[1]
    assert played[1][2][0][0].role == "tool"


async def test_gold_is_awaited_and_asked_where_the_environment_lives(villain):
    async with as_async(agar.make(villain)) as runner:
        first, _ = await runner.areset(seed=5)
        assert f"count {(await runner.agold()).text}" == first[0].text


def test_a_close_ends_the_thread_that_asked_for_gold(villain):
    env = agar.make(villain)
    try:
        first, _ = env.reset(seed=5)
        assert f"count {gold_of(env).text}" == first
        asked = [thread for thread in threading.enumerate() if thread.name == "agar-env-ProcessEnv"]
    finally:
        env.close()
    assert asked
    assert not [thread for thread in asked if thread.is_alive()]


def test_gymnasium_makes_and_checks_it_and_gold_and_render_come_through(villain):
    env = gymnasium.make(villain, render_mode="ansi").unwrapped
    try:
        assert isinstance(env, ProcessEnv)
        check_env(env, skip_render_check=True)
        env.reset(seed=1)
        count = env.gold().text
        env.step("hello")
        assert env.render() == f"> hello\ncount {count}\n[reward 0.5]"
    finally:
        env.close()


def test_what_another_process_cannot_be_given_is_the_callers_mistake():
    class Local(agar.Env):
        """Nobody can import it."""

    registry.register("Local-v0", Local, isolation="process")
    with pytest.raises(ConfigError, match="register something importable"):
        agar.make("Local-v0").reset()
    with pytest.raises(ConfigError, match='must be "inline" or "process"'):
        registry.register("Local-v0", Local, isolation="thread")
    with pytest.raises(ConfigError, match='isolation="process" too'):
        agar.make("Guess-v0", limits={"memory_mib": 256})


SCRIPT = """
import agar

class Here(agar.Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "in a script", {}

agar.register("Here-v0", Here, isolation="process")
"""
USE = """
env = agar.make("Here-v0")
print(env.reset())
env.close()
"""


def test_a_class_of_the_callers_script_is_found(tmp_path):
    (tmp_path / "good.py").write_text(SCRIPT + "if __name__ == '__main__':" + textwrap.indent(USE, "    "))
    (tmp_path / "bad.py").write_text(SCRIPT + USE)
    good, bad = (
        subprocess.run([sys.executable, str(tmp_path / name)], capture_output=True, text=True, timeout=50)
        for name in ("good.py", "bad.py")
    )
    assert good.stdout == "('in a script', {})\n", good.stderr
    assert 'under `if __name__ == "__main__":`' in bad.stderr


def test_a_class_that_no_file_holds_is_told_to_move_to_one():
    run = subprocess.run([sys.executable, "-"], input=SCRIPT + USE, capture_output=True, text=True, timeout=50)
    assert "Here-v0 is defined where no other process can read it" in run.stderr
    assert 'make "my_module:Here-v0"' in run.stderr


def test_sets_have_the_same_order_in_every_process(tmp_path, monkeypatch):
    (tmp_path / "sets.py").write_text(
        "import agar\n"
        "class Sets(agar.Env):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return ' '.join({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}), {}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    seen = set()
    for _ in range(2):
        env = ProcessEnv("Sets-v0", "sets:Sets", {}, LIMITS)
        seen.add(env.reset(seed=1)[0])
        env.close()
    assert len(seen) == 1


async def test_inline_too_what_can_be_seen_is_named():
    class Large(agar.Env):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return [Message(role="user", content="x" * 1000)] * 9000, {}

    with pytest.raises(EnvError, match=r"Large gave an observation of 9,009,000 characters, at most 8,388,608"):
        await as_async(Large()).areset()
