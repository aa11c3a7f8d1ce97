"""The conformance check passes what is sound and names what is not."""

import asyncio
import random
import sqlite3
import threading

import pytest

from agar.envs.base import AsyncEnv, Env
from agar.envs.checker import LEVELS, Check, Report, acheck_env, check_env
from agar.envs.library.guess import Guess
from agar.envs.registry import register
from agar.envs.tasks import GeneratedTasks
from agar.envs.tool_env import ToolEnv, tool
from agar.errors import ConfigError
from agar.types import TaskRow, Turn

FAKE = {"sandbox": {"backend": "fake"}}


def findings(env, *, tasks=None, levels=LEVELS, max_turns=8, kwargs=None) -> dict[str, str]:
    register("Checked-v0", env, tasks=tasks, max_turns=max_turns, kwargs=kwargs)
    report = check_env("Checked-v0", levels=levels)
    assert report.ok == (not any(not check.ok for check in report.checks))
    return {check.name: check.message for check in report.checks if not check.ok}


def test_the_built_in_environments_are_fit_to_train_in():
    for name, kwargs in [("Guess-v0", {}), ("Hunt-v0", FAKE)]:
        report = check_env(name, kwargs=kwargs)
        assert report.ok, str(report)
        assert {check.level for check in report.checks} == set(LEVELS)


@pytest.mark.sandbox
@pytest.mark.slow
def test_the_hunt_is_fit_to_train_in_with_real_sandboxes():
    report = check_env("Hunt-v0")
    assert report.ok, str(report)
    assert not [check.name for check in report.checks if check.skipped]


def test_a_report_reads_well():
    report = Report(
        env="X-v0",
        checks=(
            Check(level="L0", name="spaces", ok=True, message="fine"),
            Check(level="L2", name="gold is best", ok=True, message="no gold()", skipped=True),
            Check(level="L4", name="closing", ok=False, message="mend close()"),
        ),
    )
    assert not report.ok
    assert str(report).splitlines() == [
        "X-v0: needs work",
        "  L0 ok   spaces: fine",
        "  L2 skip gold is best: no gold()",
        "  L4 FAIL closing: mend close()",
    ]


def test_an_unseeded_environment_fails_determinism():
    class Careless(Guess):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.number = random.randint(1, 99)
            return f"A number, not {random.random()}.", {}

    found = findings(Careless, levels=["L0", "L1"])
    assert "gymnasium interface" in found
    assert "self.np_random" in found["fresh environments"]


def test_an_order_of_a_set_fails_in_another_process(tmp_path, monkeypatch):
    (tmp_path / "orders.py").write_text(
        "from agar.envs.library.guess import Guess\n"
        "class Orders(Guess):\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return ' '.join({str(number) for number in range(60)}), {}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONHASHSEED", "123")  # of the other process; this one has its own already
    found = findings("orders:Orders", levels=["L1"])
    assert set(found) == {"another process"}
    assert "never from the order of a set" in found["another process"]


def test_state_that_survives_a_reset_fails_determinism():
    class Remembers(Guess):
        steps = 0

        def step(self, action):
            self.steps += 1
            _, *rest = super().step(action)
            return f"Step {self.steps}.", *rest

    assert set(findings(Remembers, levels=["L1"])) == {"used environment"}


def test_a_reward_for_anything_fails_discrimination():
    class Generous(Guess):
        def step(self, action):
            return "Well done.", 1.0, True, False, {}

    found = findings(Generous, levels=["L2", "L3"])
    assert "reward the solution only" in found["nothing is worst"]
    assert "chance earns little" in found


def test_a_gold_that_is_not_the_best_is_found():
    class Poor(Guess):
        def gold(self):
            return Turn(text="0")

    assert "nothing is worst" in findings(Poor, levels=["L2"])


def test_a_grader_that_looks_for_the_answer_anywhere_is_found():
    class Sloppy(Guess):
        def step(self, action):
            return "", float(f" {self.number} " in f" {action.text} "), True, False, {}

    assert "every number" in findings(Sloppy, levels=["L3"])["texts"]


def test_a_grader_inside_the_sandbox_is_found():
    class Trusting(ToolEnv):
        @tool
        async def sh(self, command: str) -> str:
            """Run a command."""
            return (await self.sb.exec(command)).stdout

        async def areset(self, *, seed=None, options=None):
            await super().areset(seed=seed, options=options)
            return "Solve it.", {}

        async def answer(self, action):
            result = await self.sb.exec("cat reward.txt 2> /dev/null")
            return "", float(result.stdout.strip() or 0), True, False, {}

        def gold(self):
            return Turn(text="")

    with_sandbox = {"sandbox": {"backend": "bubblewrap"}}
    found = findings(Trusting, levels=["L3"], kwargs=with_sandbox)
    assert "write the reward file" in found["commands"]


test_a_grader_inside_the_sandbox_is_found = pytest.mark.sandbox(test_a_grader_inside_the_sandbox_is_found)


def test_an_environment_that_swallows_a_dead_sandbox_is_found():
    class Swallows(ToolEnv):
        @tool
        async def sh(self, command: str) -> str:
            """Run a command."""
            return (await self.sb.exec(command)).stdout

        async def areset(self, *, seed=None, options=None):
            await super().areset(seed=seed, options=options)
            self.looked = False
            return "Solve it.", {}

        async def astep(self, action):
            self.looked = self.looked or bool(action.tool_calls)
            result = await super().astep(action)
            return ("nothing", 0.0, False, False, {}) if "failure" in result[4] else result

        async def answer(self, action):
            return "", float(action.text == "yes"), True, False, {}

        def gold(self):
            from agar.envs.library.hunt import open_box

            return Turn(text="yes") if self.looked else open_box(1, call=0)

    assert "INFRA_ERROR" in findings(Swallows, levels=["L4"], kwargs=FAKE)["dead sandbox"]


def test_a_turn_that_makes_it_raise_is_named():
    class Fragile(Guess):
        def step(self, action):
            action.text.encode()
            return super().step(action)

    assert "half a surrogate pair" in findings(Fragile, levels=["L4"])["malformed turns"]


def test_an_endless_episode_is_found():
    assert "max_turns" in findings(Guess, levels=["L0"], max_turns=None)["episodes end"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (lambda split, i: TaskRow(key=str(i), split=split), "occurs twice"),
        (lambda split, i: TaskRow(key=f"{split}{i}", payload={"seed": i}, split=split), "in both splits"),
        (lambda split, i: TaskRow(key=f"{split}{i}", payload={"set": {1}}, split=split), "not JSON-able"),
        (lambda split, i: TaskRow(key=f"{split}{i}", split="test"), "says split='test'"),
    ],
)
def test_task_sets_that_cannot_be_trusted_are_found(row, complaint):
    def tasks(split):
        return GeneratedTasks(lambda index: row(split, index), size=3)

    assert complaint in findings(Guess, tasks=tasks, levels=["L0"])["task sets"]


def test_an_environment_that_cannot_be_made_is_a_finding_and_no_crash():
    class Unmade(Env):
        def __init__(self):
            raise RuntimeError("no licence")

    found = findings(Unmade)
    assert all("no licence" in message for name, message in found.items() if name != "task sets")


async def test_it_runs_from_asynchronous_code_and_by_level():
    report = await acheck_env("Guess-v0", levels=["L1"])
    assert report.ok
    assert {check.level for check in report.checks} == {"L1"}


class Shelf(Env):
    """Keeps its answer in a database, which only the thread that opened it may use."""

    database = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.close()
        self.database = sqlite3.connect(":memory:")
        self.database.execute("create table shelf as select ? as answer", (int(self.np_random.integers(1000)),))
        return f"What is on the shelf? {self._answer()}", {}

    def step(self, action):
        return "", float(action.text == self._answer()), True, False, {}

    def gold(self):
        return self._answer()

    def close(self):
        if self.database is not None:
            self.database.close()

    def _answer(self):
        return str(self.database.execute("select answer from shelf").fetchone()[0])


def test_an_environment_that_is_bound_to_its_thread_is_fit_to_train_in():
    assert findings(Shelf) == {}


class Vanishing(AsyncEnv):
    """Awaits a task that it has cancelled itself."""

    async def astep(self, action):
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task


def test_an_environment_that_cancels_itself_is_a_finding_and_no_crash():
    found = findings(Vanishing, levels=("L0",))
    assert "raised CancelledError, though nobody outside" in found["episodes end"]


def test_a_check_that_takes_too_long_is_a_finding():
    class Slow(Guess):
        def step(self, action):
            import time

            time.sleep(0.3)
            return super().step(action)

    register("Slow-v0", Slow, max_turns=8)
    report = check_env("Slow-v0", levels=["L1"], check_timeout_s=0.2)
    assert "not over within 0.2 s" in report.checks[0].message


def test_the_deadline_bounds_what_blocks_and_never_returns_too():
    done = threading.Event()

    class Stuck(Guess):
        def step(self, action):
            done.wait()
            return super().step(action)

    register("Stuck-v0", Stuck, max_turns=8)
    try:
        report = check_env("Stuck-v0", levels=["L0"], check_timeout_s=1.0)
    finally:
        done.set()
    late = [check.name for check in report.checks if "not over within 1 s" in check.message]
    assert {"gymnasium interface", "gymnasium make", "episodes end"} <= set(late)
    assert len(report.checks) == 5


async def test_a_check_that_is_cancelled_plays_on_nowhere():
    playing, left = threading.Event(), threading.Event()

    class Waits(AsyncEnv):
        async def astep(self, action):
            playing.set()
            try:
                await asyncio.sleep(600)
            finally:
                left.set()

    register("Waits-v0", Waits, max_turns=8)
    checking = asyncio.create_task(acheck_env("Waits-v0", levels=["L1"]))
    assert await asyncio.to_thread(playing.wait, 30)
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking
    assert await asyncio.to_thread(left.wait, 10)


def test_unknown_names_and_levels_are_the_callers_mistake():
    with pytest.raises(ConfigError, match="there is Hunt-v0"):
        check_env("Hunt-v9")
    with pytest.raises(ConfigError, match="unknown level"):
        check_env("Guess-v0", levels=["L9"])
